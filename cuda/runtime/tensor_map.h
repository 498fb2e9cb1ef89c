// Tensor maps: descriptions of bf16 tensors in device memory, from which copies of tiles to and from
// shared memory compute their addresses (cuda/matmul/tile_copies.cuh). GPUs of compute capability 9.0
// have these copies. This header uses no CUDA header.
#pragma once

#include <cstdint>
#include <optional>

namespace orrery::cuda {

struct alignas(64) TensorMap {  // CUtensorMap; a kernel's parameter is `const __grid_constant__ TensorMap`
  uint64_t words[16];
};

struct TiledTensor {
  const void* data;   // bf16
  int64_t size[4];    // the elements of dimension 0 are adjacent
  int64_t stride[3];  // of dimensions 1 to 3, in elements; any number if the size is 1
  int tile[4];        // 64 elements of dimension 0, a line of shared memory; at most 256 of each other dimension
};

// Returns true if the driver can encode tensor maps: one for CUDA 12 or later. Without them, use
// kernels that need none.
bool has_tensor_maps();

// Returns nothing if no tile of this tensor can be copied: its address or a stride is not a multiple
// of 16 bytes, a size is 0 or above 2^32, or the driver is too old. Use a kernel without maps then.
std::optional<TensorMap> tensor_map(const TiledTensor& tensor);

}  // namespace orrery::cuda
