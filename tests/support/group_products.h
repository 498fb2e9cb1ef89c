// wgmma as the PTX manual specifies it (cuda/matmul/warp_group.cuh): a warp group starts products
// and later waits for them. A GPU may read an operand until the wait, so it must be equal at start
// and wait, in registers as in shared memory. The sums are NaN in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "tests/support/site.h"

namespace cuda_on_cpu {

inline constexpr unsigned threads_of_group = 128;

struct GroupProduct {           // m64nNk16 of bf16: d += a b
  float* d;                     // this thread's N / 2 values
  int columns;                  // N
  uint64_t a;                   // descriptor, unless A is in registers:
  const uint32_t* a_registers;  // this thread's 4
  uint64_t b;                   // descriptor
  bool a_transposed, b_transposed;
  bool accumulate;  // false: d = a b
};
enum class GroupStep { start, commit, wait, take, give };  // take, give: of registers

// The products of one warp group.
class GroupProducts {
 public:
  // `thread`: the arguments of the 128 threads; only d and a_registers may differ. `shared`: shared
  // memory. `begun`: all threads called group_products_begin() since products were done.
  void start(void* const* thread, const unsigned char* shared, size_t bytes, bool begun, Site site);
  void commit() { ++committed_; }
  bool wait(int in_flight);  // returns true if products were done that were not before
  bool in_flight() const { return !started_.empty(); }
  void forget() { started_.clear(), sums_.clear(), committed_ = 0; }

 private:
  struct Started {
    GroupProduct product;
    const unsigned char* shared;
    size_t bytes;
    std::vector<const uint32_t*> a_registers;  // of the threads, if A is in registers
    std::vector<uint16_t> operands;            // copies at the start: A (64, 16), then B (16, N)
    int group;
  };
  struct Sum {
    std::vector<float*> d;
    std::vector<float> value;  // (64, N)
    int in_flight = 0;
  };
  std::vector<Started> started_;
  std::map<float*, Sum> sums_;  // by d of the first thread
  int committed_ = 0;
};

}  // namespace cuda_on_cpu
