#include "cuda/runtime/tensor_map.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <bit>
#include <string>

#include "cuda/runtime/runtime.h"
#include "engine/types/machine_error.h"

namespace orrery::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// The runtime returns the driver's function, so the program does not link libcuda, which machines
// without a GPU do not have.
Encode find_encode() {
  constexpr const char* name = "cuTensorMapEncodeTiled";
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
  const cudaError_t result = cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found);
#else
  const cudaError_t result = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found);
#endif
  if (result == cudaSuccess && found == cudaDriverEntryPointSuccess) return reinterpret_cast<Encode>(function);
  cudaGetLastError();  // clears the error, which the next call would report
  return nullptr;
}
Encode encode() {
#if defined(__CUDACC__)  // tests of the emulation change the driver
  static
#endif
      const Encode found = find_encode();
  return found;
}

}  // namespace

bool has_tensor_maps() { return encode(); }

std::optional<TensorMap> tensor_map(const TiledTensor& tensor) {
  if (!encode()) return {};
  constexpr cuuint32_t rank = 4, steps[rank] = {1, 1, 1, 1};
  constexpr int64_t element = 2, unit = 16;  // bytes
  cuuint64_t sizes[rank], strides[rank - 1];
  cuuint32_t box[rank];
  for (cuuint32_t d = 0; d < rank; ++d) {
    sizes[d] = static_cast<cuuint64_t>(tensor.size[d]), box[d] = static_cast<cuuint32_t>(tensor.tile[d]);
    if (d > 0) strides[d - 1] = static_cast<cuuint64_t>(sizes[d] == 1 ? unit : tensor.stride[d - 1] * element);
  }
  thread_local const int64_t used = free_memory();  // makes the GPU's context current in this thread
  static_cast<void>(used);
  CUtensorMap map{};
  const CUresult result = encode()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rank, const_cast<void*>(tensor.data), sizes,
                                   strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                   CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_ERROR_INVALID_VALUE) return {};
  if (result != CUDA_SUCCESS)
    throw MachineError("tensor map: the driver returned error " + std::to_string(static_cast<int>(result)) +
                       "; start again, or use --device=cpu");
  return std::bit_cast<TensorMap>(map);
}

}  // namespace orrery::cuda
