// Gradients of bf16 parameters are summed in f32, also over micro-batches.
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

// Returns the gradients of all parameters after two micro-batches of values exact in bf16.
Tensor gradients(const std::string& spec, Dtype dtype) {
  const auto layer = make_normalization(parse_spec(spec), {.width = 24});
  initialize(*layer, 1);
  convert(*layer, dtype);
  FlatParameters flat(*layer);
  flat.zero_gradients();
  for (int batch = 0; batch < 2; ++batch) {
    ForwardPass pass;
    const Tensor x = random_tensor({40, 24}, 1 + batch).to(Dtype::bf16).to(dtype),
                 dy = random_tensor({40, 24}, 5 + batch).to(Dtype::bf16).to(dtype);
    backward((*layer)(x, pass), dy);
  }
  CHECK(flat.gradients().dtype() == Dtype::f32);
  return flat.gradients().clone();
}

}  // namespace

TEST_CASE("dyt, derf and dynamic: gradients of bf16 parameters are accumulated as in f32") {
  for (const char* spec : {"dyt", "derf(0.5, shift=0.25)", "dynamic(sigmoid)"}) {
    INFO(spec);
    const Tensor wide = gradients(spec, Dtype::f32);
    CHECK(max(abs(wide), 0).item() > 1);
    CHECK(largest_difference(gradients(spec, Dtype::bf16), wide) <= 1e-5);
  }
}
