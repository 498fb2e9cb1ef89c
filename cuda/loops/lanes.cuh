// Folds over the lanes of a warp.
#pragma once

#include <cuda_runtime.h>

namespace orrery::cuda {

struct Plus {
  static constexpr bool commutes = true;
  template <class A>
  __device__ A operator()(A a, A b) const {
    return a + b;
  }
};
struct Larger {  // a unless b is larger: only a NaN in `a` stays
  template <class A>
  __device__ A operator()(A a, A b) const {
    return b > a ? b : a;
  }
};
struct Smaller {
  template <class A>
  __device__ A operator()(A a, A b) const {
    return b < a ? b : a;
  }
};

// Folds the values of `lanes` (a power of two) consecutive lanes. The lower lane's value always
// comes first, so every lane computes the same bits. mask: the warp's participating lanes.
template <class A, class Combine>
__device__ A across_lanes(A value, Combine combine, unsigned lanes, unsigned mask = ~0u) {
  for (unsigned flip = lanes / 2; flip > 0; flip /= 2) {
    const A other = __shfl_xor_sync(mask, value, static_cast<int>(flip));
    if constexpr (requires { Combine::commutes; })
      value = combine(value, other);
    else
      value = threadIdx.x & flip ? combine(other, value) : combine(value, other);
  }
  return value;
}

}  // namespace orrery::cuda
