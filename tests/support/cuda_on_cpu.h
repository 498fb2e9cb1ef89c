// Runs CUDA kernels on the CPU, so that they are proven on machines without a GPU.
//
// The threads of a block are fibers: they take turns on one OS thread and change over only where they wait for each
// other, in an order that `options` sets, so every run can be repeated.  Blocks run in parallel.  Shared memory is NaN
// when a block starts; device memory cannot be read by the host outside of copies (device_memory.cpp).
//
// Kernels see none of this but CUDA's own names, in cuda_runtime.h; what is missing there does not compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/support/group_products.h"

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
// Of the CUDA thread whose turn it is.
constinit inline thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace cuda_on_cpu {

// ---- for tests

struct Site {  // a place in a kernel
  const char* file = "";
  int line = 0;
  static constexpr Site current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
  friend bool operator==(Site a, Site b) {
    return a.line == b.line && (a.file == b.file || !std::strcmp(a.file, b.file));
  }
};

enum class Order { forward, reverse, random };  // in which threads of a block, and blocks, take turns

inline int of_environment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

struct Options {
  Order order = Order::forward;
  uint32_t seed = 1;                  // of Order::random
  int workers = 0;                    // OS threads that run blocks; 0: all cores, 16 at most
  Site dropped;                       // a seeded fault: the barrier at this place does nothing
  bool lax_waits = false;             // a seeded fault: every wait for copies leaves one more group in flight
  int devices = 1;                    // 0: a machine without a card
  int64_t memory = int64_t{4} << 30;  // of the device, in bytes
  int architecture = of_environment("ORRERY_EMULATED_ARCHITECTURE", 90);  // whose limits hold
  bool holds_code = true;             // false: the program was compiled for other cards
  // How tensor cores add: cards cut sums off where the largest addend ends, and take denormal numbers for 0, instead of
  // rounding each sum to the nearest.
  bool truncating = of_environment("ORRERY_TRUNCATING_TENSOR_CORES", 0) != 0;
};
inline Options options;

// The __syncthreads and __syncwarp that are reached while `run` runs.
std::vector<Site> barriers_reached(const std::function<void()>& run);

// A mistake in a kernel that a card would answer with a hang or with nonsense.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Memory that nobody has written to: a NaN as f32, f64 and either half of it as bf16; as an integer -51, neither 0 nor
// -1, and as an index no farther before an array than its guard reaches.
inline constexpr unsigned char never_set_word[] = {0xcd, 0xff, 0xff, 0xff};
inline void never_set(void* data, size_t bytes) {
  auto* const to = static_cast<unsigned char*>(data);
  std::memcpy(to, never_set_word, bytes < 4 ? bytes : 4);
  for (size_t done = 4; done < bytes; done *= 2) std::memcpy(to + done, to, done < bytes - done ? done : bytes - done);
}

// ---- for cuda_runtime.h

struct Body {  // a call without allocation: what each CUDA thread runs
  const void* object;
  void (*call)(const void*);
};
struct Launch {
  dim3 grid, block;
  size_t shared_bytes;
  Body body;
};
void run(const Launch& launch);

void* shared_memory(size_t bytes);  // a Fault if the launch asked for less
void watch_gap(const void* data, size_t bytes);  // of shared memory: a Fault when the block ends if it was written to
void block_barrier(Site site);

// The last lane of `mask` to arrive runs `operation` once for the whole warp; lane[i] is the argument of lane i.  Then
// all return.  Lanes that have left the kernel are not waited for.  mma and load_matrix want all 32 at one place.
using Operation = void (*)(void* const* lane, unsigned mask);
void warp_operation(unsigned mask, Operation operation, void* argument, Site site);
void warp_barrier(unsigned mask, Site site);

// Operations (instructions.cpp).
struct Shuffle {
  uint64_t bits;
  unsigned source;
};
void shuffle(void* const* lane, unsigned mask);
struct Vote {
  unsigned predicate, ballot;
};
void ballot(void* const* lane, unsigned mask);
struct Mma {  // m16n8k16 of bf16: d += a b
  float* d;
  const uint32_t *a, *b;
};
void mma(void* const* lane, unsigned mask);
struct LoadMatrix {  // ldmatrix of 8 x 8 matrices of 16-bit elements
  const void* row;   // 16 bytes
  uint32_t* result;  // a register for each matrix
  int count;
  bool transpose;
};
void load_matrix(void* const* lane, unsigned mask);

// A step of a warp group's products: the last of its 128 threads to arrive does it for all.  All come to one place.
void group_operation(GroupStep step, void* argument, Site site);
unsigned shared_address(const void* p);  // bytes from the beginning of the block's shared memory
// D + the products of a row and a column 16 long, whose elements are `stride` apart, as cards add.
float truncated_sum(float sum, const float* a, const float* b, int stride);

// The row that this lane hands to ldmatrix must be 16 aligned bytes of shared memory.
void check_matrix_row(const void* row, Site site);

// Copies to shared memory that a thread has started and not yet waited for (PTX cp.async).  Until its group has been
// waited for, the destination is as if never set: a card may write it at any moment between.  Here, in a header, so
// that the sanitizers see both writes as the thread's own.
class Copies {
 public:
  void start(void* to, const void* from, unsigned bytes, unsigned valid, Site site) {
    check_copy(to, from, bytes, valid, site);
    never_set(to, bytes);
    started_.push_back({to, from, bytes, valid, committed_});
  }
  void commit() { ++committed_; }
  void wait(int in_flight) {
    const int landed = committed_ - in_flight - (options.lax_waits ? 1 : 0);  // groups
    size_t kept = 0;
    for (const Copy& copy : started_)
      if (copy.group < landed) {
        std::memset(copy.to, 0, copy.bytes);
        if (copy.valid) std::memcpy(copy.to, copy.from, copy.valid);
        visible_ = false;
      } else {
        started_[kept++] = copy;
      }
    started_.resize(kept);
  }
  void forget() { started_.clear(), committed_ = 0, visible_ = true; }
  // Whether products of warp groups see what has arrived: what threads write goes another way than what these read.
  bool visible() const { return visible_; }
  void make_visible() { visible_ = true; }

 private:
  struct Copy {
    void* to;
    const void* from;
    unsigned bytes, valid;
    int group;
  };
  static void check_copy(const void* to, const void* from, unsigned bytes, unsigned valid, Site site);

  std::vector<Copy> started_;
  int committed_ = 0;
  bool visible_ = true;
};
Copies& copies();  // of the CUDA thread whose turn it is

inline unsigned lane_index() { return threadIdx.x % 32; }  // blocks of warps are one-dimensional

template <class T>
T exchange(unsigned mask, T value, unsigned source, Site site) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  Shuffle mine{0, source};
  std::memcpy(&mine.bits, &value, sizeof(T));
  warp_operation(mask, shuffle, &mine, site);
  std::memcpy(&value, &mine.bits, sizeof(T));
  return value;
}

}  // namespace cuda_on_cpu
