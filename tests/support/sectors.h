// How much of the device's memory is moved for what a warp asks for at once: memory comes in sectors of 32 bytes, each
// whole, so lanes whose bytes lie apart move more sectors than their bytes would fill.  Of cp.async, in the first block
// of every launch: what else a kernel loads and stores is plain C++, which the emulation does not see.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/support/cuda_on_cpu.h"

namespace cuda_on_cpu {

struct SectorTraffic {  // sectors that were touched, and the fewest that hold as many bytes
  uint64_t touched = 0, least = 0;
};
SectorTraffic take_sector_traffic();         // of all blocks since the last call
inline SectorTraffic latest_sector_traffic;  // of a launch

class SectorCounter {
 public:
  void note(unsigned thread, const void* data, unsigned bytes, Site site);
  void end_block();

 private:
  // Lanes take turns, so what they do together is found by its place: the nth access of a line in the block.
  struct Access {
    unsigned warp;
    int line;
    unsigned turn;
    uintptr_t begin;
    unsigned bytes;
  };
  static SectorTraffic of_warp(std::vector<Access>::iterator first, std::vector<Access>::iterator end);

  std::vector<Access> accesses_;
  std::vector<std::vector<std::pair<int, unsigned>>> turns_;  // by thread: of each line
};

}  // namespace cuda_on_cpu
