// Tensor maps, by the driver of a GPU or the emulated one.
#include "cuda/runtime/tensor_map.h"

#include <doctest/doctest.h>

#include "tests/cuda/kernel_testing.h"

namespace orrery {
namespace {

template <class F>
bool encodes(const F& change) {
  static DeviceArray<bf16> memory(Device::cuda, 4096);
  cuda::TiledTensor tensor{
      .data = memory.data(), .size = {40, 3, 2, 5}, .stride = {48, 144, 288}, .tile = {64, 8, 1, 1}};
  change(tensor);
  return cuda::tensor_map(tensor).has_value();
}
TEST_CASE("tensor maps: tensors that no tile copy can read have none") {
  if (no_gpu() || cuda::device_properties().major < 9) return;
  CHECK(cuda::has_tensor_maps());
  CHECK(encodes([](auto&) {}));
  CHECK(encodes([](auto& t) { t.tile[1] = 256; }));
  CHECK(encodes([](auto& t) { t.size[2] = 1, t.stride[1] = 7; }));
  CHECK_FALSE(encodes([](auto& t) { t.stride[1] = 7; }));
  CHECK_FALSE(encodes([](auto& t) { t.stride[0] = 44; }));
  CHECK_FALSE(encodes([](auto& t) { t.stride[2] = int64_t{1} << 40; }));
  CHECK_FALSE(encodes([](auto& t) { t.data = static_cast<const char*>(t.data) + 8; }));
  CHECK_FALSE(encodes([](auto& t) { t.size[3] = 0; }));
  CHECK_FALSE(encodes([](auto& t) { t.size[1] = (int64_t{1} << 32) + 1; }));
  CHECK_FALSE(encodes([](auto& t) { t.tile[1] = 257; }));
  CHECK_FALSE(encodes([](auto& t) { t.tile[0] = 72; }));
  CHECK_FALSE(encodes([](auto& t) { t.tile[0] = 60; }));
}

#if defined(EMULATE_CUDA)
TEST_CASE("tensor maps: a driver that is too old has none") {
  cuda_on_cpu::options.has_tensor_maps = false;
  CHECK_FALSE(cuda::has_tensor_maps());
  CHECK_FALSE(encodes([](auto&) {}));
  cuda_on_cpu::options = {};
}
#endif

}  // namespace
}  // namespace orrery
