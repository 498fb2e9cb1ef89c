// Memory and order of work on a GPU, for plain C++: no word of CUDA in this header.
//
// All work goes to one stream of our own, in the order of the calls; what a thread records goes to one of its own.
// Whatever CUDA refuses becomes an Error that names the operation, the place and the shape of the launch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "engine/system/pool.h"

namespace orrery::cuda {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

int device_count();  // 0 without a card or without a driver

struct Card {
  std::string name;
  int major, minor;  // compute capability
  int multiprocessors;
  int64_t memory;         // bytes
  int64_t shared_memory;  // bytes that a block can ask for
  double clock = 0;       // of the multiprocessors, in Hz, the highest; 0: it does not say
  bool warp_groups = false;  // runs code for 90a: cuda/matmul/warp_group.cuh
};
// The card in use.  An Error if there is none, if it is older than the kernels need (compute capability 8.0), or if the
// program was compiled for other ones.
const Card& card();
void check_supported(const Card& card);  // the latter two Errors
int64_t free_memory();                   // free bytes of the card
bool started();                          // whether any work was queued

// ---- memory

// Straight from the card, for pools.  nullptr if the memory is used up.
void* allocate(int64_t bytes);
void free(void* data);

// The pool that this thread's blocks come from.  Blocks are aligned to 256 bytes; what is given back is taken again by
// work that is queued later, so no wait is needed.
std::shared_ptr<Pool> pool();

// When one side is the host, the bytes have arrived on return.  Between two places on the device the copy is queued.
void copy(void* to, bool to_device, const void* from, bool from_device, int64_t bytes);
void zero(void* data, int64_t bytes);  // queued

void synchronize();  // returns when all queued work is done

// Scratch memory for the kernels that are launched while this object lives.
class Workspace {
 public:
  explicit Workspace(int64_t bytes);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  void* data() const { return data_; }

 private:
  std::shared_ptr<Pool> pool_;
  void* data_;
};

// ---- without waiting

// Memory of the host that the card copies from and to while the host goes on.
class Pinned {
 public:
  explicit Pinned(int64_t bytes);
  ~Pinned();
  Pinned(const Pinned&) = delete;
  void* data() const { return data_; }

  void send(void* to, int64_t bytes);           // queued: to the device
  void fetch(const void* from, int64_t bytes);  // queued: from the device
  void wait() const;                            // returns when the latest of these is done

 private:
  void* data_;
  void* event_;
};

// What engine/tensor/staging.h makes a Graph of.  `record` calls the function once; what it queues is done by each
// `replay` and not before, so it must not wait for the device.  What it allocates comes from `pool`, which belongs to
// the recording until `destroy_recorded`: its blocks stay where they are, also those that are freed meanwhile.
std::shared_ptr<Pool> new_pool();
void* record(const std::shared_ptr<Pool>& pool, const std::function<void()>& work);
void replay(void* recorded);
void destroy_recorded(void* recorded);  // waits for the replays

}  // namespace orrery::cuda
