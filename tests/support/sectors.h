// Coalescing: device memory moves in whole sectors of 32 bytes, so lanes with scattered addresses
// move more sectors than their bytes fill. Counted in the first block of every launch, for cp.async
// and for plain loads and stores. g++ reports loads and stores by calls of KernelAddressSanitizer:
// in coalescing_test.cpp, and with -DORRERY_WATCH_ACCESSES=ON in all kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/support/cuda_on_cpu.h"

namespace cuda_on_cpu {

struct SectorTraffic {  // sectors touched, and the minimum for this many bytes
  uint64_t touched = 0, minimum = 0;
};
SectorTraffic take_sector_traffic();         // returns the sum over all blocks since the last call
inline SectorTraffic latest_sector_traffic;  // traffic of the latest launch
void record_access(const void* data, size_t bytes, const void* instruction);  // access by the running CUDA thread

class SectorCounter {
 public:
  // `instruction` is equal for all lanes of an access.
  void record(unsigned thread, const void* data, size_t bytes, uintptr_t instruction);
  void end_block();

 private:
  // Lanes run in turn, so concurrent accesses are matched by instruction and count in the block.
  struct Access {
    unsigned warp;
    uintptr_t instruction;
    unsigned access_number;
    uintptr_t begin;
    size_t bytes;
  };
  static SectorTraffic of_warp(std::vector<Access>::iterator first, std::vector<Access>::iterator end);

  std::vector<Access> accesses_;
  std::vector<std::vector<std::pair<uintptr_t, unsigned>>> turns_;  // per thread: (instruction, count)
};

}  // namespace cuda_on_cpu
