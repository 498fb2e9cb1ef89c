// Kernels of a backward pass that wait for others (cuda/runtime/waiting.h); none without CUDA.
#pragma once

#if defined(ORRERY_CUDA) || defined(EMULATE_CUDA)
#include "cuda/runtime/waiting.h"
#else
namespace orrery::cuda {
struct WaitingKernels {
  static void launch() {}
  static void launch(const void*) {}
};
}  // namespace orrery::cuda
#endif
