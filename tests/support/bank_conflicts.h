// How often shared memory is asked for what one access of a warp wants: its 32 banks of 4 bytes give each a word at a
// time, and lanes that want different words of one bank wait for each other.  Of ldmatrix and cp.async, whose addresses
// the emulation sees, in the first block of every launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

#include "tests/support/cuda_on_cpu.h"

namespace cuda_on_cpu {

struct BankTraffic {  // times that shared memory was asked, and how often without conflicts
  uint64_t loads = 0, least_loads = 0, copies = 0, least_copies = 0;
};
inline bool counts_bank_traffic = std::getenv("ORRERY_SHARED_MEMORY") != nullptr;  // it takes time
BankTraffic take_bank_traffic();  // of all blocks since the last call
inline BankTraffic latest_bank_traffic;  // of a launch

// The copies of a block, and the rows that its lanes have handed to ldmatrix.
class BankCounter {
 public:
  void note_row(unsigned thread, const void* row);
  void note_copy(unsigned thread, const void* to, unsigned bytes, Site site);
  void load_matrices(unsigned warp);
  void end_block();

 private:
  struct Access {
    uintptr_t address;
    unsigned bytes;
  };
  static unsigned times(const Access* first, size_t count);

  // Lanes take turns, so what they do together is found by its place: the nth copy of a line in the block.
  struct Copy {
    int line;
    unsigned turn;
    Access access;
  };
  std::map<unsigned, uintptr_t> rows_;
  std::map<unsigned, std::vector<Copy>> copies_;  // by thread
  std::map<std::pair<unsigned, int>, unsigned> turns_;
  BankTraffic traffic_;
};

}  // namespace cuda_on_cpu
