// Theoretical peak rates of GPUs, compared with their data sheets.
#include "engine/matmul/peak.h"

#include <doctest/doctest.h>

#include <cmath>

#include "cuda/runtime/runtime.h"

using namespace orrery;

namespace {

cuda::DeviceProperties gpu(const char* name, int major, int minor, int multiprocessors, double megahertz) {
  return {name, major, minor, multiprocessors, int64_t{1} << 35, int64_t{1} << 17, megahertz * 1e6};
}
double teraflops(const cuda::DeviceProperties& gpu, Dtype dtype,
                 ProductPrecision precision = ProductPrecision::highest) {
  return peak_flops(gpu, dtype, precision) / 1e12;
}

}  // namespace

TEST_CASE("peak: the values of data sheets") {
  const cuda::DeviceProperties h100 = gpu("NVIDIA H100 80GB HBM3", 9, 0, 132, 1980);
  CHECK(std::abs(teraflops(h100, Dtype::bf16) / 989.4 - 1) <= 1e-3);
  CHECK(std::abs(teraflops(h100, Dtype::f32) / 66.9 - 1) <= 1e-3);
  CHECK(std::abs(teraflops(h100, Dtype::f64) / 33.5 - 1) <= 2e-3);
  const cuda::DeviceProperties a100 = gpu("NVIDIA A100-SXM4-40GB", 8, 0, 108, 1410);
  CHECK(std::abs(teraflops(a100, Dtype::bf16) / 312 - 1) <= 1e-3);
  CHECK(std::abs(teraflops(a100, Dtype::f32) / 19.5 - 1) <= 1e-3);
  CHECK(std::abs(teraflops(a100, Dtype::f64) / 9.7 - 1) <= 5e-3);
  const cuda::DeviceProperties a40 = gpu("NVIDIA A40", 8, 6, 84, 1740);
  CHECK(std::abs(teraflops(a40, Dtype::bf16) / 149.7 - 1) <= 2e-3);
  CHECK(std::abs(teraflops(a40, Dtype::f32) / 37.4 - 1) <= 2e-3);
  const cuda::DeviceProperties game = gpu("NVIDIA GeForce RTX 4090", 8, 9, 128, 2520);
  CHECK(std::abs(teraflops(game, Dtype::bf16) / 165.2 - 1) <= 1e-3);
  CHECK(std::abs(teraflops(game, Dtype::f32) / 82.6 - 1) <= 1e-3);
}

TEST_CASE("peak: f32 on tensor cores, and unknown GPUs") {
  const cuda::DeviceProperties a100 = gpu("NVIDIA A100-SXM4-40GB", 8, 0, 108, 1410);
  CHECK(teraflops(a100, Dtype::f32, ProductPrecision::medium) == teraflops(a100, Dtype::bf16));
  CHECK(std::abs(teraflops(a100, Dtype::f32, ProductPrecision::high) / 52 - 1) <= 1e-3);
  CHECK(teraflops(a100, Dtype::bf16, ProductPrecision::medium) == teraflops(a100, Dtype::bf16));
  CHECK(teraflops(a100, Dtype::i32) == 0);
  CHECK(teraflops(gpu("a later one", 13, 0, 200, 2000), Dtype::bf16) == 0);
  CHECK(teraflops(gpu("without a clock", 9, 0, 132, 0), Dtype::bf16) == 0);
  CHECK(peak_flops(Device::cpu, Dtype::f32) == 0);
}
