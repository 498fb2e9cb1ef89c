// Padding masks, for normalizations with statistics over several tokens.
#pragma once

#include "engine/tensor/tensor.h"
#include "engine/types/check.h"
#include "engine/types/host_device.h"

namespace orrery::nn {

struct RealTokens {  // predicate for kernels: true for tokens that are not padding
  const int32_t* lengths = nullptr;
  int64_t time = 1;
  HOST_DEVICE bool operator()(int64_t token) const { return !lengths || token % time < lengths[token / time]; }
};

// lengths: (B) i32 for x (B, T, C), or undefined if all tokens are real.
inline RealTokens real_tokens(const char* operation, const Tensor& x, const Tensor& lengths) {
  if (!lengths) return {};
  check(x.shape().rank() == 3 && lengths.dtype() == Dtype::i32 && lengths.shape() == Shape{x.size(0)}, operation,
        ": lengths ", lengths.shape(), " do not fit x ", x.shape(),
        "; x must be (batch, time, channels) and lengths (batch) i32");
  return {lengths.data<int32_t>(), x.size(1)};
}

}  // namespace orrery::nn
