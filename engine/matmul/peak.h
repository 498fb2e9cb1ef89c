// Peak FLOP/s of a GPU, for model FLOPs utilization (MFU).
#pragma once

#include "engine/matmul/matmul.h"
#include "engine/types/device.h"
#include "engine/types/dtype.h"

namespace orrery {

namespace cuda {
struct DeviceProperties;  // cuda/runtime/runtime.h
}

// Returns the peak FLOP/s, two per multiply-add, of matrix products in that dtype. It is 0 if
// unknown, as on the CPU, whose clock under load varies.
double peak_flops(Device device, Dtype dtype);
// Returns the peak of `gpu`, for f32 by `precision`; 0 if its architecture is not in peak.cpp.
double peak_flops(const cuda::DeviceProperties& gpu, Dtype dtype, ProductPrecision precision);

}  // namespace orrery
