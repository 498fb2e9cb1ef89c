// The rounding of f32 sums, beside the same sums in f64: it must not grow with the number of terms.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "nn/attentions/base/attention.h"
#include "nn/attentions/base/fused.h"
#include "nn/losses/base/loss.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using namespace orrery::testing;

namespace {

// The root mean square of the differences over that of the exact numbers.
double relative_error(const Tensor& found, const Tensor& exact) {
  const std::vector<double> x = found.to_vector(), y = exact.to_vector();
  REQUIRE(x.size() == y.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) difference += (x[i] - y[i]) * (x[i] - y[i]), size += y[i] * y[i];
  return std::sqrt(difference / size);
}

// Checks each result of a function of f32 tensors against its result in f64, of the same numbers: by its own bound, or
// by one for all.
using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
void check_rounding(const std::vector<double>& bounds, const std::vector<Tensor>& given, const Function& f) {
  std::vector<Tensor> wide;
  for (const Tensor& x : given) wide.push_back(x.to(Dtype::f64));
  const std::vector<Tensor> found = f(given), exact = f(wide);
  for (size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i);
    CHECK(relative_error(found[i], exact[i]) < bounds[std::min(i, bounds.size() - 1)]);
  }
}

Tensor floats(const Shape& shape, int seed, double mean = 0) { return random_tensor(shape, seed, Dtype::f32) + mean; }

}  // namespace

TEST_CASE("long sums: softmax attention has the rounding of a tile, over any number of keys") {
  for (const int64_t keys : {64, 512, 2048, 8192}) {
    CAPTURE(keys);
    // Output, then the gradients of queries (a difference of much larger numbers), keys and values.
    check_rounding(
        {3e-7, 4e-6, 6e-7, 6e-7},
        {floats({1, 16, 2, 8}, 1), floats({1, keys, 2, 8}, 2), floats({1, keys, 2, 8}, 3, 1), floats({1, 16, 2, 8}, 4)},
        [](const std::vector<Tensor>& x) {
          const Tensor q = x[0].clone().set_requires_grad(), k = x[1].clone().set_requires_grad(),
                       v = x[2].clone().set_requires_grad();
          const AttentionOptions options{.mask = {.causal = false}, .scale = 0.35};
          const Tensor y = attention({.query = q, .key = k, .value = v}, options).output;
          backward(y, x[3]);
          return std::vector<Tensor>{y.detach(), q.grad(), k.grad(), v.grad()};
        });
  }
}

TEST_CASE("long sums: linear attention has the rounding of a tile, over any number of tokens") {
  for (const int64_t tokens : {64, 512, 2048, 8192}) {
    CAPTURE(tokens);
    const auto layer = make_attention(parse_spec("linear"), {.width = 16, .heads = 2, .causal = true});
    name_paths(*layer);
    initialize(*layer, 1);
    check_rounding({2.5e-7}, {floats({1, tokens, 16}, 1, 1), floats({1, tokens, 16}, 2)},
                   [&](const std::vector<Tensor>& x) {
                     convert(*layer, x[0].dtype());
                     const Tensor leaf = x[0].clone().set_requires_grad();
                     Pass pass;
                     const Tensor y = (*layer)(leaf, pass);
                     backward(y, x[1]);
                     return std::vector<Tensor>{y.detach(), leaf.grad()};
                   });
  }
}

TEST_CASE("long sums: rows, columns and losses of any length") {
  for (const int64_t n : {1000, 10000, 100000, 1000000}) {
    CAPTURE(n);
    check_rounding({2e-7}, {floats({8, n}, 1), floats({n, 8}, 2)}, [](const std::vector<Tensor>& x) {
      const Tensor logits = x[0].clone().set_requires_grad();
      const Tensor loss = cross_entropy(logits * 1.0, Tensor::from(Shape{8}, std::vector<int32_t>(8, 5)));
      loss.backward();
      return std::vector<Tensor>{sum(exp(x[0]), {1}), mean(x[0] * x[0], {1}), sum(exp(x[1]), {0}), loss.detach(),
                                 logits.grad()};
    });
  }
}

TEST_CASE("long sums: any number of rows added to one row of a table") {
  for (const int64_t n : {100, 10000, 100000, 400000}) {
    CAPTURE(n);
    const Tensor indices = Tensor::from(Shape{n}, std::vector<int32_t>(static_cast<size_t>(n), 1));
    check_rounding({3e-7}, {floats({n, 8}, 1, 1)}, [&](const std::vector<Tensor>& x) {
      return std::vector<Tensor>{index_add(x[0], indices, 3).slice(1, 2)};
    });
  }
}

TEST_CASE("long sums: the gradient of a span, over any number of queries") {
  for (const int64_t queries : {64, 1024, 8192}) {
    CAPTURE(queries);
    const Shape shape{1, queries, 2, 8};
    check_rounding(
        {1.2e-6},
        {floats(shape, 1), floats(shape, 2), floats(shape, 3), floats(shape, 4), Tensor::full({2}, 20, Dtype::f32)},
        [&](const std::vector<Tensor>& x) {
          const Tensor span = x[4].clone().set_requires_grad();
          const Tensor y = attention({.query = x[0], .key = x[1], .value = x[2], .span = span},
                                     {.mask = {.window = 48}, .scale = 0.35, .ramp = 16})
                               .output;
          backward(y, x[3]);
          return std::vector<Tensor>{span.grad()};
        });
  }
}
