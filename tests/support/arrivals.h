// Transaction barriers (mbarrier) as the PTX manual specifies them (cuda/matmul/arrivals.cuh), for
// one block. Stricter than a GPU, so that mistakes are found in every order of the threads:
//   a thread arrives at most once in a phase, and waits for each phase in turn;
//   copies need a barrier whose initialization was shown to them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "tests/support/site.h"

namespace cuda_on_cpu {

class Arrivals {
 public:
  void init(void* barrier, int arrivals, Site site);
  void show(Site site);  // shows the barriers that the running thread initialized to copies
  void arrive(void* barrier, int64_t bytes, Site site);
  void wait(void* barrier, unsigned parity, Site site);

  // Starts a copy of `bytes` bytes that completes the barrier's transaction. With Landing::early it
  // lands at once; else when no thread can run and one waits for this barrier.
  void start_copy(void* barrier, int64_t bytes, std::function<void()> land, Site site);
  bool land_copy(uint32_t random);  // lands one copy; returns false if no thread waits for one

  // Returns what the phase lacks that this thread waits for, or nothing if it does not wait for one.
  std::string missing(unsigned thread) const;
  void check_end() const;  // throws a Fault if a copy is still in flight
  void forget();

 private:
  struct Barrier {
    Site site;  // of its initialization
    unsigned owner;
    bool shown = false;
    int arrivals, pending;  // of a phase; still missing in the current one
    int64_t bytes = 0;      // expected in the current phase and not copied yet
    int64_t phase = 0;
    std::vector<unsigned> arrived = {}, waiting = {};  // threads, in the current phase
    std::map<unsigned, int64_t> waited = {};           // the latest phase that each thread waited for
    char clock[2] = {};                                // of even and odd phases
  };
  struct Copy {
    Barrier* barrier;
    int64_t bytes;
    std::function<void()> land;
    Site site;
  };
  Barrier& find(void* barrier, Site site);
  void add_arrival(Barrier& barrier, int64_t bytes, Site site);
  int64_t next_phase(Barrier& barrier, unsigned parity, Site site);  // the one that this thread waits for
  void complete_if_done(Barrier& barrier, Site site);
  void land(const Copy& copy);

  std::map<void*, Barrier> barriers_;
  std::vector<Copy> copies_;  // in flight
};
Arrivals& arrivals();  // of the running block

// Named barriers of a block (bar.sync, bar.arrive).
class NamedBarriers {
 public:
  void meet(int number, int threads, bool waits, Site site);
  void forget() { barriers_.clear(); }

 private:
  struct Barrier {
    int threads;
    std::vector<unsigned> arrived, waiting;
    int completions;
    char clock[2];  // of even and odd completions
  };
  char* arrive(int number, int threads, bool waits, Site site);  // returns the clock to wait with
  std::map<int, Barrier> barriers_;
};
NamedBarriers& named_barriers();  // of the running block

}  // namespace cuda_on_cpu
