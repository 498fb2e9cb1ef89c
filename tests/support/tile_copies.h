// Copies of tiles between device and shared memory (cp.async.bulk) as the PTX manual specifies them
// (cuda/matmul/tile_copies.cuh). They, and products of warp groups, access shared memory by another
// path than threads (PTX: the async proxy), so a thread must show its writes to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "tests/support/site.h"
#include "tests/support/tensor_maps.h"

namespace cuda_on_cpu {

// Both load to shared memory; `barrier` is a transaction barrier. Until a load lands, its destination
// is uninitialized, and writing to it is a Fault.
void load_tile(void* to, const void* map, void* barrier, const int (&at)[4], Site site);
void load_bulk(void* to, const void* from, unsigned bytes, void* barrier, Site site);

// Stores that a thread started. With Landing::late a store reads its source at the wait for its
// group; in both cases the source must be the same at the start and at the wait.
class TileStores {
 public:
  void start(const void* map, const void* from, const int (&at)[4], Site site);
  void commit(Site site);
  void wait(int in_flight, Site site);
  void check_end() const;  // throws a Fault if a store was not waited for
  void forget() { started_.clear(), committed_ = 0; }

 private:
  struct Store {
    EncodedTensor tensor;
    unsigned char* from;
    int at[4];
    std::vector<unsigned char> source;  // a copy
    int group;
    Site site;
  };
  std::vector<Store> started_;
  int committed_ = 0;
};
TileStores& tile_stores();  // of the running CUDA thread

// Writes of a block's threads to shared memory, in chunks of 16 bytes, that others may not see yet: their
// thread has not shown them, or has been at no barrier since. The emulation knows the writes of
// stmatrix and store_chunk.
class HiddenWrites {
 public:
  void write(const void* chunk);  // by the running thread
  void show();                    // shows those of the running thread
  void meet();                    // the running thread is at a barrier
  bool any() const { return !writer_.empty(); }
  void check(const void* first, size_t bytes, const char* reader, Site site) const;
  void forget() { writer_.clear(), of_thread_.clear(); }

 private:
  struct Writer {
    unsigned thread;
    bool shown;
  };
  std::map<uintptr_t, Writer> writer_;
  std::map<unsigned, std::vector<uintptr_t>> of_thread_;
};
HiddenWrites& hidden_writes();  // of the running block

// Shows the writes of the running thread, and the copies (cp.async) that it waited for.
void show_writes(Site site);

}  // namespace cuda_on_cpu
