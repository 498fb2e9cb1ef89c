// Peak FLOP/s = multiprocessors x clock x FLOPs of a multiprocessor per clock.
//
//   compute capability     f64   f32   bf16 tensor cores, dense   from
//   8.0       A100         64    128   2048                       NVIDIA A100 Tensor Core GPU Architecture, 2020
//   8.6       A40, A10     4     256   1024, GeForce 512          NVIDIA Ampere GA102 GPU Architecture, 2021
//   8.9       L40S, L4     4     256   1024, GeForce 512          NVIDIA Ada GPU Architecture, 2022
//   9.0       H100, H200   128   256   4096, at most at 1.83 GHz  NVIDIA H100 Tensor Core GPU Architecture, 2022
//
// f64 and f32 are two operations per lane of the CUDA C++ Programming Guide, "Throughput of Native
// Arithmetic Instructions"; products here do not use the tensor cores of f64. GeForce GPUs add bf16
// products at half the rate. The data sheet of the H100 SXM, 132 multiprocessors, gives 67 TFLOP/s
// of f32 (1.98 GHz) and 989 of bf16 (1.83 GHz): tensor cores lower the clock. GPUs with lower power
// limits (H100 PCIe: 756 of bf16, 1.62 GHz) are overestimated by up to 10 %; use --peak_tflops.
#include "engine/matmul/peak.h"

#include <algorithm>
#include <array>
#include <limits>

#include "cuda/runtime/runtime.h"

namespace orrery {
namespace {

constexpr double unlimited = std::numeric_limits<double>::infinity();

struct Architecture {
  int major, minor;
  double f64, f32, bf16;              // FLOPs per multiprocessor and clock
  double geforce_bf16;                // bf16 of GeForce GPUs
  double max_bf16_clock = unlimited;  // limit of the clock, in Hz
};
constexpr std::array<Architecture, 4> architectures = {{{8, 0, 64, 128, 2048, 2048},
                                                        {8, 6, 4, 256, 1024, 512},
                                                        {8, 9, 4, 256, 1024, 512},
                                                        {9, 0, 128, 256, 4096, 4096, 1.83e9}}};

}  // namespace

double peak_flops(const cuda::DeviceProperties& gpu, Dtype dtype, ProductPrecision precision) {
  const auto* const found = std::find_if(architectures.begin(), architectures.end(), [&](const Architecture& a) {
    return a.major == gpu.major && a.minor == gpu.minor;
  });
  if (found == architectures.end()) return 0;
  const bool is_geforce = gpu.name.find("GeForce") != std::string::npos;
  const double bf16 = std::min(gpu.clock, found->max_bf16_clock) * (is_geforce ? found->geforce_bf16 : found->bf16);
  constexpr double products_of_high = 6;  // bf16 products, of three terms of each factor: 1 1, 1 2, 2 1, 1 3, 2 2, 3 1
  const double per_multiprocessor = dtype == Dtype::bf16                     ? bf16
                                    : dtype == Dtype::f64                    ? gpu.clock * found->f64
                                    : dtype != Dtype::f32                    ? 0
                                    : precision == ProductPrecision::highest ? gpu.clock * found->f32
                                    : precision == ProductPrecision::high    ? bf16 / products_of_high
                                                                             : bf16;
  return gpu.multiprocessors * per_multiprocessor;
}

double peak_flops([[maybe_unused]] Device device, [[maybe_unused]] Dtype dtype) {
#if defined(ORRERY_CUDA) || defined(EMULATE_CUDA)
  if (device == Device::cuda) return peak_flops(cuda::device_properties(), dtype, product_precision());
#endif
  return 0;
}

}  // namespace orrery
