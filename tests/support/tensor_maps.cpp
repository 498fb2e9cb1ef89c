#include "tests/support/tensor_maps.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <string_view>

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  const bool known = std::string_view(name) == "cuTensorMapEncodeTiled" && version >= 12000;
  const bool has = known && cuda_on_cpu::options.has_tensor_maps;
  *found = has ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  *function = has ? reinterpret_cast<void*>(&cuTensorMapEncodeTiled) : nullptr;
  return cudaSuccess;
}

// Refuses what CUDA's driver API, section "Tensor Map Object Management", does not allow, and what the
// tile copies do not emulate: other types and ranks, and no swizzle.
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* data,
                                const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  constexpr uint32_t dimensions = 4, element = 2, unit = 16, line = 128, max_box = 256;
  constexpr uint64_t max_size = uint64_t{1} << 32, max_stride = uint64_t{1} << 40;
  const auto aligned = [](const void* address, size_t bytes) {
    return reinterpret_cast<uintptr_t>(address) % bytes == 0;
  };
  bool good = rank == dimensions && type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 && swizzle == CU_TENSOR_MAP_SWIZZLE_128B;
  good = good && aligned(map, alignof(CUtensorMap)) && data && aligned(data, unit);
  good = good && box[0] * element % unit == 0 && box[0] * element <= line;
  for (uint32_t d = 0; good && d < rank; ++d)
    good = sizes[d] > 0 && sizes[d] <= max_size && box[d] > 0 && box[d] <= max_box && element_strides[d] == 1;
  for (uint32_t d = 0; good && d < rank - 1; ++d) good = strides[d] % unit == 0 && strides[d] < max_stride;
  if (!good) return CUDA_ERROR_INVALID_VALUE;
  cuda_on_cpu::EncodedTensor tensor{
      cuda_on_cpu::EncodedTensor::valid, static_cast<unsigned char*>(data), {}, {element}, {}};
  std::copy_n(sizes, rank, tensor.size);
  std::copy_n(strides, rank - 1, tensor.stride + 1);
  std::copy_n(box, rank, tensor.box);
  std::memcpy(map, &tensor, sizeof tensor);
  return CUDA_SUCCESS;
}
