// wgmma, products that a warp group starts and later waits for, as the PTX manual says of them (cuda/matmul/
// warp_group.cuh).  A card may read an operand at any moment from the start of a product until it is waited for, so it
// must be the same at both.  What products add to is NaN meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace cuda_on_cpu {

inline constexpr unsigned threads_of_group = 128;

struct GroupProduct {  // m64nNk16 of bf16: d += a b
  float* d;            // a thread's part, N / 2 numbers
  int columns;         // N
  uint64_t a, b;       // descriptors
  bool a_transposed, b_transposed;
};
enum class GroupStep { start, commit, wait };

// The products of one warp group.
class GroupProducts {
 public:
  // `thread`: what each of the 128 threads gave, of which only d may differ.  `shared`: the block's shared memory.
  void start(void* const* thread, const unsigned char* shared, size_t bytes);
  void commit() { ++committed_; }
  void wait(int in_flight);
  bool in_flight() const { return !started_.empty(); }
  void forget() { started_.clear(), sums_.clear(), committed_ = 0; }

 private:
  struct Started {
    GroupProduct product;
    const unsigned char* shared;
    size_t bytes;
    std::vector<uint16_t> operands;  // as they were: A (64, 16), then B (16, N)
    int group;
  };
  struct Sum {
    std::vector<float*> d;
    std::vector<float> value;  // (64, N)
    int in_flight = 0;
  };
  std::vector<Started> started_;
  std::map<float*, Sum> sums_;  // by the d of the first thread
  int committed_ = 0;
};

}  // namespace cuda_on_cpu
