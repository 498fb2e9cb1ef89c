// How much of the device's memory is moved for what a warp asks for at once: memory comes in sectors of 32 bytes, each
// whole, so lanes whose bytes lie apart move more sectors than their bytes would fill.  In the first block of every
// launch, of cp.async and of the loads and stores of plain C++.  These g++ reports in the files of kernels that are
// watched, as KernelAddressSanitizer wants it, by a call before each: in coalescing_test.cpp, and with
// -DORRERY_WATCH_ACCESSES=ON everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/support/cuda_on_cpu.h"

namespace cuda_on_cpu {

struct SectorTraffic {  // sectors that were touched, and the fewest that hold as many bytes
  uint64_t touched = 0, least = 0;
};
SectorTraffic take_sector_traffic();         // of all blocks since the last call
inline SectorTraffic latest_sector_traffic;  // of a launch
void note_access(const void* data, size_t bytes, const void* instruction);  // of the CUDA thread whose turn it is

class SectorCounter {
 public:
  // place: of the instruction, the same for all lanes.
  void note(unsigned thread, const void* data, size_t bytes, uintptr_t place);
  void end_block();

 private:
  // Lanes take turns, so what they do together is found by its place: the nth access there in the block.
  struct Access {
    unsigned warp;
    uintptr_t place;
    unsigned turn;
    uintptr_t begin;
    size_t bytes;
  };
  static SectorTraffic of_warp(std::vector<Access>::iterator first, std::vector<Access>::iterator end);

  std::vector<Access> accesses_;
  std::vector<std::vector<std::pair<uintptr_t, unsigned>>> turns_;  // by thread: of each place
};

}  // namespace cuda_on_cpu
