// ReLU that propagates NaN.
#pragma once

#include <type_traits>

#include "engine/types/host_device.h"

namespace orrery::scalar {

// max(x, 0), exact except for the sign of a zero. On a GPU a maximum that propagates NaN is one
// instruction; comparison and selection are two.
template <class T>  // float, double, Dual or ApproxFloat
HOST_DEVICE inline T positive_part(T x) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, float>) {
    T y;
    asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
    return y;
  }
#endif
  return x < 0 ? T(0) : x;
}

}  // namespace orrery::scalar
