// Records launches, copies and allocations of the emulated library (tests/support/cuda_on_cpu.h)
// and executes none. Device memory is not touched, so full-size models take seconds and little
// memory. A program that contains recorder.cpp records instead of computing.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace recorder {

struct Entry {
  std::string phase = {}, operation = {}, launch = {};
  size_t blocks = 0;  // bytes of a copy or a memset
  unsigned threads = 0;
  size_t shared = 0;
  const void* kernel = nullptr;
  std::string work = {};
  auto key() const { return std::tie(phase, operation, launch, blocks, threads, shared, kernel, work); }
};
struct Entries {  // recorded entries and their counts, in the order of the first
  std::vector<std::pair<Entry, int>> all;

  bool operator==(const Entries& other) const;
  int count() const;
  bool has_work() const;  // returns whether there is more than copies from and to the host
  void write(std::FILE* file) const;  // one line each, as launches.cpp describes
};

inline bool active = false;  // recording is on
inline Entries entries;
inline std::string phase = "forward";          // "backward" while gradients are computed, "optimizer" from then on
inline int multiprocessors = 132;              // on the GPU that the library reports: an H100 or H200
inline std::function<void()> at_synchronize;   // called when the host waits for all queued work
size_t peak_memory();                          // peak of allocated bytes

}  // namespace recorder
