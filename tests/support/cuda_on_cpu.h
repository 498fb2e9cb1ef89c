// Runs CUDA kernels on the CPU, so that machines without a GPU can test them.
//
// The threads of a block are fibers on one OS thread. They switch only where they wait for each
// other, in an order that `options` sets, so every run is reproducible. Blocks run in parallel.
// Shared memory starts as NaN. The host can read device memory only by copies (device_memory.cpp).
//
// Kernels use only the CUDA names in cuda_runtime.h; a name that is missing there does not compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <type_traits>
#include <vector>

#include "tests/support/arrivals.h"
#include "tests/support/group_products.h"
#include "tests/support/site.h"
#include "tests/support/tile_copies.h"

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
// Indices of the CUDA thread that is running.
constinit inline thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace cuda_on_cpu {

// ---- for tests

enum class Order { forward, reverse, random };  // order in which blocks, and the threads of a block, run
enum class Landing { late, early };             // tile copies land when no thread can run, or when they start

inline int environment_number(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

struct Options {
  Order order = Order::forward;
  uint32_t seed = 1;                  // for Order::random
  int workers = 0;                    // OS threads that run blocks; 0: all cores, 16 at most
  Site dropped;                       // injected fault: the barrier, arrival, wait or fence at this site does nothing
  bool lax_waits = false;             // injected fault: every wait for copies leaves one more group in flight
  int devices = 1;                    // 0: a machine without a GPU
  int64_t memory = int64_t{4} << 30;  // bytes of device memory
  int architecture = environment_number("ORRERY_EMULATED_ARCHITECTURE", 90);  // sets the limits; 90: sm_90
  int driver = 13000;          // latest CUDA version of the driver
  bool closed_memory = false;  // device memory opens when a block has waited; one worker (early_launch.h)
  bool holds_code = true;  // false: the program was compiled for other GPUs
  // Rounding of tensor cores. true: as GPUs, which truncate addends at the last bit of the largest
  // and flush denormals to 0. false: each sum is rounded to nearest.
  bool truncating = environment_number("ORRERY_TRUNCATING_TENSOR_CORES", 0) != 0;
  Landing landing = Landing::late;
  bool has_tensor_maps = true;  // false: a driver that is too old for them
};
inline Options options;

// Returns the barriers, arrivals, waits and fences that `run` reaches, with closed memory also the
// sites of wait_for_earlier and allow_next.
std::vector<Site> barriers_reached(const std::function<void()>& run);

// The pattern of uninitialized memory: a NaN as f32, as f64 and as either bf16 half. As an integer
// it is -51: not 0 or -1, and as an index it stays within the guard before an array.
inline constexpr unsigned char never_set_word[] = {0xcd, 0xff, 0xff, 0xff};
inline void never_set(void* data, size_t bytes) {
  auto* const to = static_cast<unsigned char*>(data);
  std::memcpy(to, never_set_word, bytes < 4 ? bytes : 4);
  for (size_t done = 4; done < bytes; done *= 2) std::memcpy(to + done, to, done < bytes - done ? done : bytes - done);
}

// ---- for cuda_runtime.h

struct Body {  // an allocation-free callable that each CUDA thread runs
  const void* object;
  void (*call)(const void*);
};
struct Launch {
  dim3 grid, block;
  size_t shared_bytes;
  Body body;
};
void run(const Launch& launch);

void* shared_memory(size_t bytes);  // Fault if the launch requested less
bool holds_shared(const void* data, size_t bytes);
void watch_gap(const void* data, size_t bytes);  // Fault at the block's end if this shared memory was written
void block_barrier(Site site);
void wait_for_earlier(Site site = Site::current());
void allow_next(Site site = Site::current());

// The last lane of `mask` to arrive runs `operation` for the warp; lane[i] is lane i's argument.
// Lanes that left the kernel are skipped. elect, mma, load_matrix and store_matrix require all 32
// lanes at one site.
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
void elect(void* const* lane, unsigned mask);  // sets the leader's bool
struct Mma {                                   // m16n8k16 of bf16: d += a b
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
struct StoreMatrix {  // stmatrix of four 8 x 8 matrices of 16-bit elements
  const uint32_t* matrix;
  unsigned char row[16];  // what the lane's address receives
};
void store_matrix(void* const* lane, unsigned mask);

// The last of a warp group's 128 threads to arrive runs the step for all. All are at one site.
void group_operation(GroupStep step, void* argument, Site site);
void begin_group_products(Site site);
unsigned shared_address(const void* p);  // bytes from the beginning of the block's shared memory
// Returns D + a row times a column of length 16, added as GPUs do; b's elements are `stride` apart.
float truncated_sum(float sum, const float* a, const float* b, int stride);

// Throws a Fault unless the row that this lane passes to ldmatrix or stmatrix is aligned and in
// shared memory.
void check_matrix_row(const char* instruction, const void* row, Site site);

// A thread's copies to shared memory in flight (PTX cp.async). The destination is uninitialized
// until the thread waits for the copy's group, because a GPU may write it at any time before. In a
// header, so that sanitizers attribute both writes to the thread.
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
  // Products of warp groups read by another path than threads write.
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
Copies& copies();  // copies of the running CUDA thread

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
