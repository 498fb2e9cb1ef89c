// Products with weights in every dtype. Backward differs by dtype, and adds in place to gradients
// that exist already.
#include "nn/layers/linear.h"

#include <doctest/doctest.h>

#include "engine/ops/ops.h"
#include "nn/attentions/base/attention.h"
#include "nn/attentions/base/fused.h"
#include "nn/feed_forwards/base/feed_forward.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using orrery::testing::largest_difference;
using orrery::testing::random_tensor;
using orrery::testing::whole_numbers;

namespace {

constexpr Dtype dtypes[] = {Dtype::f64, Dtype::f32, Dtype::bf16};

using Inputs = std::vector<Tensor>;
using Function = std::function<Tensor(const Inputs&)>;

struct Passes {
  int count;
  bool has_fixed_gradient = false;  // gradients have a fixed buffer, as with an optimizer; operations add to it
};
// Returns the f64 gradients of all inputs after some passes, each of which adds to them.
std::vector<Tensor> gradients_of(const Function& f, const Inputs& inputs, const Tensor& dy, Dtype dtype,
                                 Passes passes) {
  Inputs leaves;
  for (const Tensor& x : inputs) {
    leaves.push_back(x.to(dtype).clone().set_requires_grad());
    if (!passes.has_fixed_gradient) continue;
    leaves.back().set_grad(Tensor::zeros(x.shape(), dtype));
    leaves.back().impl()->has_fixed_gradient = true;
  }
  for (int i = 0; i < passes.count; ++i) backward(f(leaves), dy.to(dtype));
  std::vector<Tensor> gradients;
  for (const Tensor& x : leaves) {
    REQUIRE(x.grad());
    CHECK(x.grad().dtype() == dtype);
    gradients.push_back(x.grad().to(Dtype::f64));
  }
  return gradients;
}

// Integers are exact in every dtype, so gradients must equal those of the plain formula in f64.
void check_exact(const Function& f, const Function& plain, const Inputs& inputs, const Tensor& dy) {
  for (const Dtype dtype : dtypes)
    for (const Passes passes : {Passes{1}, Passes{2}, Passes{1, true}, Passes{2, true}}) {
      const std::vector<Tensor> actual = gradients_of(f, inputs, dy, dtype, passes),
                                expected = gradients_of(plain, inputs, dy, Dtype::f64, {passes.count});
      for (size_t i = 0; i < inputs.size(); ++i) {
        INFO("input ", i, " in ", name(dtype), ", passes ", passes.count,
             passes.has_fixed_gradient ? ", fixed buffer" : "");
        CHECK(largest_difference(expected[i], Tensor::zeros_like(expected[i])) > 0);
        CHECK(largest_difference(actual[i], expected[i]) == 0);
      }
    }
}

Tensor plain_linear(const Inputs& in) { return matmul(in[0], in[1], {.b = true}) + in[2]; }

}  // namespace

TEST_CASE("linear: gradients of whole numbers are exact in every dtype, and add up over two passes") {
  const Inputs inputs = {whole_numbers({2, 3, 5}, 1), whole_numbers({7, 5}, 2), whole_numbers({7}, 3),
                         whole_numbers({2, 3, 7}, 4)};
  check_exact([](const Inputs& in) { return linear(in[0], in[1], in[2], in[3]); },
              [](const Inputs& in) { return plain_linear(in) + in[3]; }, inputs, whole_numbers({2, 3, 7}, 5));
}

TEST_CASE("linear_split: gradients are exact in every dtype and add up, also if an output is unused") {
  const Inputs inputs = {whole_numbers({2, 3, 5}, 1), whole_numbers({7, 5}, 2), whole_numbers({7}, 3)};
  const Tensor dy = whole_numbers({2, 3, 7}, 5);
  check_exact(
      [](const Inputs& in) {
        return concatenate(linear_split(in[0], in[1], in[2], {4, 2, 1}), -1);
      },
      plain_linear, inputs, dy);
  check_exact(
      [](const Inputs& in) {
        const std::vector<Tensor> parts = linear_split(in[0], in[1], in[2], {4, 2, 1});
        return concatenate({parts[0], parts[2]}, -1);
      },
      [](const Inputs& in) {
        const Tensor y = plain_linear(in);
        return concatenate({slice(y, 2, 0, 4), slice(y, 2, 6, 7)}, -1);
      },
      inputs, slice(dy, 2, 0, 5));
}

TEST_CASE("dense feed-forward: gradients are exact in every dtype and add up, that of the residual too") {
  // Small values: a sum in bf16 is exact up to 256.
  const Inputs inputs = {whole_numbers({1, 2, 3}, 1) * 0.5, whole_numbers({4, 3}, 2) * 0.5,
                         whole_numbers({4}, 3) * 0.5,       whole_numbers({3, 4}, 4) * 0.5,
                         whole_numbers({3}, 5) * 0.5,       whole_numbers({1, 2, 3}, 6)};
  const Activation relu("relu");
  check_exact([&](const Inputs& in) { return dense_feed_forward(in[0], relu, in[1], in[2], in[3], in[4], in[5]); },
              [](const Inputs& in) {
                const Tensor z = matmul(in[0], in[1], {.b = true}) + in[2];
                const Tensor a = maximum(z, Tensor::zeros({1}, z.dtype()));
                return matmul(a, in[3], {.b = true}) + in[4] + in[5];
              },
              inputs, Tensor::from({1, 2, 3}, {1, 0, -1, 0, 1, 1}, Dtype::f64));
}

TEST_CASE("linear attention in bf16: output and gradients are those of reference mode in f64, rounded") {
  const Tensor x = random_tensor({2, 6, 48}, 1), dy = random_tensor({2, 6, 48}, 2);
  const auto run = [&](Dtype dtype) {
    std::optional<ReferenceMode> simple;
    if (dtype == Dtype::f64) simple.emplace();
    const auto layer = make_attention(parse_spec("linear(softplus, normalize=yes)"), {.width = 48, .heads = 2});
    name_paths(*layer);
    convert(*layer, dtype);
    int seed = 10;
    for (const NamedParameter& p : parameters_of(*layer))
      p.parameter->value.copy_from((random_tensor(p.parameter->value.shape(), ++seed) * 0.2).to(dtype));
    for (const NamedParameter& p : parameters_of(*layer)) p.parameter->value.set_requires_grad();
    const Tensor leaf = x.to(dtype).clone().set_requires_grad();
    ForwardPass pass;
    const Tensor y = (*layer)(leaf, pass);
    backward(y, dy.to(dtype));
    std::vector<Tensor> results = {y.detach().to(Dtype::f64), leaf.grad().to(Dtype::f64)};
    for (const NamedParameter& p : parameters_of(*layer)) results.push_back(p.parameter->value.grad().to(Dtype::f64));
    return results;
  };
  const std::vector<Tensor> rounded = run(Dtype::bf16), exact = run(Dtype::f64);
  for (size_t i = 0; i < exact.size(); ++i) {
    INFO("result ", i);
    const double size = largest_difference(exact[i], Tensor::zeros_like(exact[i]));
    CHECK(largest_difference(rounded[i], exact[i]) <= 0.03 * size);
  }
}
