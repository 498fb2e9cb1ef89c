// The contents of a tensor map that the emulated driver (cuda.h) encodes, for tile_copies.h.
#pragma once

#include <cstdint>

namespace cuda_on_cpu {

struct EncodedTensor {
  static constexpr uint32_t valid = 0x7e5502a9;
  uint32_t mark;  // `valid` in an encoded map
  unsigned char* data;
  uint64_t size[4];    // elements
  uint64_t stride[4];  // bytes; of dimension 0 the size of an element
  uint16_t box[4];     // elements
};
static_assert(sizeof(EncodedTensor) <= 128);

}  // namespace cuda_on_cpu
