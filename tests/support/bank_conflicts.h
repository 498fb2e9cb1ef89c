// Bank conflicts of shared memory. Each of its 32 banks delivers one 4-byte word at a time, so
// lanes that access different words of one bank wait. Counted for ldmatrix, stmatrix and
// cp.async in the first block of every launch; the emulation has only their addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

#include "tests/support/cuda_on_cpu.h"

namespace cuda_on_cpu {

struct BankTraffic {  // transactions of shared memory: actual, and without bank conflicts
  uint64_t loads = 0, min_loads = 0, copies = 0, min_copies = 0;
};
inline bool counts_bank_traffic = std::getenv("ORRERY_SHARED_MEMORY") != nullptr;  // counting is slow
BankTraffic take_bank_traffic();         // returns the sum over all blocks since the last call
inline BankTraffic latest_bank_traffic;  // traffic of the latest launch

// The copies of a block, and the row addresses that its lanes pass to ldmatrix and stmatrix.
class BankCounter {
 public:
  void record_row(unsigned thread, const void* row);
  void record_copy(unsigned thread, const void* to, unsigned bytes, Site site);
  void access_matrices(unsigned warp);
  void end_block();

 private:
  struct Access {
    uintptr_t address;
    unsigned bytes;
  };
  static unsigned times(const Access* first, size_t count);

  // Lanes run in turn, so concurrent copies are matched by line and count in the block.
  struct Copy {
    int line;
    unsigned access_number;
    Access access;
  };
  std::map<unsigned, uintptr_t> rows_;
  std::map<unsigned, std::vector<Copy>> copies_;  // by thread
  std::map<std::pair<unsigned, int>, unsigned> turns_;
  BankTraffic traffic_;
};

}  // namespace cuda_on_cpu
