// A kernel whose warp groups have different tasks, on a GPU or its emulation, against plain loops.
#include "engine/loops/loops.h"  // so that nvcc compiles this file

#include <doctest/doctest.h>

#include "tests/cuda/kernel_testing.h"
#include "tests/cuda/runtime/two_products.h"

namespace orrery {
namespace {

constexpr int64_t rows = 300, depth = 200, side = two_products::side;

// Returns true if z and f are exactly the results of plain loops.
bool is_right() {
  const std::vector<bf16> a = whole_numbers<bf16>(rows * depth, 1), b = whole_numbers<bf16>(side * depth, 2),
                          v = whole_numbers<bf16>(side * side, 3);
  const std::vector<float> bias = whole_numbers<float>(side, 4);
  DeviceArray<bf16> on_a(Device::cuda, a), on_b(Device::cuda, b), on_v(Device::cuda, v);
  DeviceArray<bf16> z(Device::cuda, rows * side), f(Device::cuda, rows * side);
  DeviceArray<float> on_bias(Device::cuda, bias);
  const auto map = [](DeviceArray<bf16>& x, int64_t columns, int64_t lines) {
    return *cuda::tensor_map({x.data(), {columns, lines, 1, 1}, {columns, 0, 0}, {64, 64, 1, 1}});
  };
  const two_products::Maps maps{map(on_a, depth, rows), map(on_b, depth, side), map(on_v, side, side),
                                map(z, side, rows), map(f, side, rows)};
  constexpr int tiles = (rows + 63) / 64, steps = (depth + 63) / 64;
  cuda::launch({"two products", 2, 384, sizeof(two_products::Shared)}, two_products::kernel, maps, on_bias.input(),
               steps, tiles);
  std::vector<double> expected_z, expected_f;
  for (int64_t i = 0; i < rows; ++i) {
    const auto number = [](const std::vector<bf16>& x, int64_t at) {
      return static_cast<float>(x[static_cast<size_t>(at)]);
    };
    float w[side];
    for (int64_t j = 0; j < side; ++j) {
      float sum = 0;
      for (int64_t e = 0; e < depth; ++e) sum += number(a, i * depth + e) * number(b, j * depth + e);
      w[j] = static_cast<float>(bf16(sum + bias[static_cast<size_t>(j)]));
    }
    for (int64_t c = 0; c < side; ++c) {
      float sum = 0;
      for (int64_t j = 0; j < side; ++j) sum += w[j] * number(v, j * side + c);
      const float rounded = static_cast<float>(bf16(sum));
      expected_z.push_back(rounded), expected_f.push_back(std::max(rounded, 0.f));
    }
  }
  return z.read() == expected_z && f.read() == expected_f;
}

TEST_CASE("groups with different tasks: tiles that are copied, multiplied, staged and stored have the right numbers") {
  if (no_gpu() || !cuda::warp_groups()) return;
  at_every_landing([] { in_every_order([] { CHECK(is_right()); }); });
}

#if defined(EMULATE_CUDA)
TEST_CASE("groups with different tasks: each barrier, arrival, wait and fence is needed") {
  if (thread_sanitizer) return;
  const auto right = [] { return right_at_every_landing(is_right); };
  check_that_every_barrier_is_needed("tests/cuda/runtime/two_products.h", right, all_barriers);
}
#endif

}  // namespace
}  // namespace orrery
