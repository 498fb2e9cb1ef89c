// Gradients of bf16 parameters are summed in f32: the sums of a micro-batch are added unrounded.
#include <doctest/doctest.h>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "nn/normalizations/base/normalization.h"
#include "nn/optimizers/base/optimizer.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using orrery::testing::largest_difference;
using orrery::testing::random_tensor;

namespace {

// Returns the flat gradients of a `dtype` model after these micro-batches, with exact bf16 values.
Tensor gradients_of(const std::string& spec, Dtype dtype, const std::vector<int>& batches = {1, 2}) {
  constexpr int64_t width = 12;
  const auto model = make_normalization(parse_spec(spec), {.width = width});
  initialize(*model, 1);
  convert(*model, dtype);
  FlatParameters parameters(*model);
  parameters.zero_gradients();
  for (const int batch : batches) {
    const auto numbers = [&](int seed) { return random_tensor(Shape{3, 40, width}, seed).to(Dtype::bf16).to(dtype); };
    ForwardPass pass;
    pass.training = true, pass.rng = RandomKey{1, static_cast<uint64_t>(batch)};
    const Tensor x = numbers(batch);
    x.set_requires_grad();
    backward((*model)(x, pass), numbers(10 * batch));
  }
  return parameters.gradients();
}

}  // namespace

TEST_CASE("the gradients of a normalization's bf16 parameters are f32 and equal those of an f32 model") {
  for (const std::string spec : {"layer", "rms", "group(groups=3)", "group(groups=3, over=sequence)", "batch"}) {
    INFO(spec);
    const Tensor wide = gradients_of(spec, Dtype::f32), narrow = gradients_of(spec, Dtype::bf16);
    REQUIRE(narrow.dtype() == Dtype::f32);
    CHECK(largest_difference(wide, wide.to(Dtype::bf16).to(Dtype::f32)) > 0.01);  // rounding would show
    CHECK(largest_difference(wide, narrow) == 0);
    const Tensor first = gradients_of(spec, Dtype::f32, {1}), second = gradients_of(spec, Dtype::f32, {2});
    CHECK(largest_difference(wide, first + second) == 0);
  }
}
