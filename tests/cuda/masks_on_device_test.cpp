// Every registered mask on the device: its table, and attention under it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "nn/attentions/base/attention.h"
#include "nn/masks/base/mask.h"
#include "tests/cuda/kernel_testing.h"
#include "tests/support/attention_layers.h"

using namespace orrery;
using namespace orrery::nn;
using namespace orrery::testing;

namespace {

std::vector<std::string> expressions() {
  std::vector<std::string> all = masks().names();
  for (const char* more : {"causal and (sinks(3) or window(20))", "fixed_blocks(16, 2) and causal",
                           "causal and (random_blocks(16, r=2) or dilated(5) and window(40))"})
    all.emplace_back(more);
  return all;
}
LayerResult on(Device device, const std::string& spec, const std::string& mask, Dtype dtype) {
  const auto named = std::make_shared<const NamedMask>(mask, 150);
  const auto layer = layer_of(spec, {.width = 32, .heads = 2, .context = 150, .mask = named});
  convert(*layer, dtype), move(*layer, device);
  const auto random = [&](int seed) { return random_tensor({1, 140, 32}, seed).to(dtype).to(device); };
  return run(*layer, random(3), random(4), {});
}
// Compares in units of the largest value, at least 1.
void check_devices_agree(const std::string& spec, const std::string& mask, Dtype dtype, double tolerance) {
  const LayerResult cpu = on(Device::cpu, spec, mask, dtype), cuda = on(Device::cuda, spec, mask, dtype);
  for (const auto& [a, b] : {std::pair(cpu.y, cuda.y), std::pair(cpu.dx, cuda.dx)}) {
    double size = 1;
    for (const double x : a.to_vector()) size = std::max(size, std::abs(x));
    CHECK(largest_difference(a, b) <= tolerance * size);
  }
}

}  // namespace

TEST_CASE("masks on a GPU: tables equal those of the CPU, bit by bit") {
  if (no_gpu()) return;
  for (const std::string& expression : expressions()) {
    CAPTURE(expression);
    const NamedMask mask(expression, 150);
    for (const MaskArea& area : {MaskArea{150, 150}, MaskArea{70, 140, 200, 130}}) {
      AttentionMask cpu, cuda;
      mask.narrow(cpu, area, Device::cpu), mask.narrow(cuda, area, Device::cuda);
      CHECK(bool(cpu.table.bits) == bool(cuda.table.bits));
      if (!cpu.table.bits) continue;
      CHECK(cpu.table.bits.to_vector() == cuda.table.bits.to_vector());
      const auto tiles = static_cast<size_t>(cpu.table.bits.size(0) / 64 * (cpu.table.bits.size(1) / 2));
      const Tensor coverage = cuda.table.coverage.to(Device::cpu);
      const auto* const a = reinterpret_cast<const uint8_t*>(cpu.table.coverage.data<int32_t>());
      const auto* const b = reinterpret_cast<const uint8_t*>(coverage.data<int32_t>());
      CHECK(std::equal(a, a + tiles, b));
    }
  }
}

TEST_CASE("masks on a GPU: attention agrees with that of the CPU, forward and backward") {
  if (no_gpu()) return;
  for (const std::string& expression : expressions())
    for (const char* spec : {"softmax", "pointwise(relu)", "sparsemax"}) {
      CAPTURE(expression);
      CAPTURE(spec);
      check_devices_agree(spec, expression, Dtype::f32, 1e-4);
      if (std::string(spec) != "sparsemax") check_devices_agree(spec, expression, Dtype::bf16, 0.04);  // it has jumps
    }
}
