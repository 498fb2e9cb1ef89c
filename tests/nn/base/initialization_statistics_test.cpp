// Head outputs at initialization: scores and values are independent and N(0, 1), n keys per row.
//
// Every attention in the table runs as a layer. Its projections are set so that a query has 8
// channels and norm sqrt(8), and a key 8 channels of N(0, 1). Given the query, the scores
// <q, k> / sqrt(8) are exactly independent and N(0, 1). Value channel 0 is 1, so its output is the
// sum of the row's weights; the 31 others are N(0, 1). Keys and values are redrawn every 64 rows.
#include <doctest/doctest.h>

#include <cmath>

#include "engine/ops/ops.h"
#include "nn/attentions/base/attention.h"
#include "nn/normalizations/base/normalization.h"

using namespace orrery;
using namespace orrery::nn;

namespace {

constexpr int64_t keys = 1024, queries = 64, sequences = 49, batches = 32;  // 100,352 rows
constexpr int64_t width = 32, score_channels = 8, encoder_width = score_channels + width;

struct Row {
  std::string spec;
  double sum, variance;  // sum of a row's weights; variance of an output channel
};

std::vector<Row> table() {
  const double n = keys;
  const std::string scale = "scale=" + print_number(1 / std::sqrt(score_channels)),
                    scale_over_n = "scale=" + print_number(1 / (n * std::sqrt(score_channels)));
  return {{"softmax(" + scale + ")", 1, std::exp(1) / n},
          {"naive(relu, " + scale + ")", n / std::sqrt(2 * M_PI), n / 2},
          {"relu_former(" + scale + ")", std::sqrt(n / M_PI), 1},
          {"pointwise(relu, alpha=1, " + scale + ")", 1 / std::sqrt(2 * M_PI), 0.5 / n},
          {"pointwise(relu_squared, alpha=1, " + scale + ")", 0.5, 1.5 / n},
          {"naive(relu_squared, " + scale_over_n + ")", 0.5 / n, 1.5 / (n * n * n)}};
}

// 1 at (row + i, column + i), i < count
void set_identity(const Tensor& matrix, int64_t row, int64_t column, int64_t count) {
  for (int64_t i = 0; i < count; ++i) matrix.mutable_data<float>()[(row + i) * matrix.size(1) + column + i] = 1;
}

std::unique_ptr<Sublayer> layer_of(const std::string& spec) {
  std::unique_ptr<Sublayer> layer =
      make_attention(parse_spec(spec), {.width = width, .heads = 1, .causal = false, .encoder_width = encoder_width});
  name_paths(*layer);
  initialize(*layer, 1);
  for (const NamedParameter& p : parameters_of(*layer)) {
    const Tensor& x = p.parameter->value;
    if (p.path.ends_with("weight") || p.path.ends_with("bias")) x.copy_from(Tensor::zeros_like(x));
    if (p.path == "query.weight") set_identity(x, 0, 0, score_channels);
    if (p.path == "key_value.weight") {
      set_identity(x, 0, 0, score_channels);
      set_identity(x, width + 1, score_channels + 1, width - 1);
    }
    if (p.path == "key_value.bias") x.mutable_data<float>()[width] = 1;
    if (p.path == "output.weight") set_identity(x, 0, 0, width);
  }
  return layer;
}

Tensor normal_numbers(const Shape& shape, RandomKey key) {
  const Tensor x = Tensor::empty(shape, Dtype::f32, Device::cpu);
  fill(x, normal(1), key);
  return x;
}

}  // namespace

TEST_CASE("row sums and output variances at initialization agree with the table, within 2 %") {
  const NoGrad guard;
  struct Totals {
    double sum = 0, squares = 0;
  };
  const std::vector<Row> rows = table();
  std::vector<std::unique_ptr<Sublayer>> layers;
  for (const Row& row : rows) layers.push_back(layer_of(row.spec));
  std::vector<Totals> totals(rows.size());
  const Tensor one = Tensor::full({score_channels}, 1);
  for (int64_t b = 0; b < batches; ++b) {
    const RandomKey key = RandomKey{5, 0}.derive(static_cast<uint64_t>(b));
    const Tensor direction = normal_numbers({sequences, queries, score_channels}, key.derive("query"));
    const Tensor x =
        concatenate({rms_norm(direction, one, 1e-12), Tensor::zeros({sequences, queries, width - score_channels})}, -1);
    ForwardPass pass;
    pass.encoder_output = normal_numbers({sequences, keys, encoder_width}, key.derive("memory"));
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::vector<double> y = (*layers[i])(x, pass).to_vector();
      for (size_t at = 0; at < y.size(); ++at)
        (at % width == 0 ? totals[i].sum : totals[i].squares) += at % width == 0 ? y[at] : y[at] * y[at];
    }
  }
  const double count = batches * sequences * queries;
  REQUIRE(count >= 100000);
  for (size_t i = 0; i < rows.size(); ++i) {
    INFO(rows[i].spec);
    CHECK(totals[i].sum / count == doctest::Approx(rows[i].sum).epsilon(0.02));
    CHECK(totals[i].squares / (count * (width - 1)) == doctest::Approx(rows[i].variance).epsilon(0.02));
  }
}
