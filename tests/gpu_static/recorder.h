// Notes what the emulated library of the project (tests/support/cuda_on_cpu.h) launches, queues and asks for, and does
// none of it: kernels and copies do nothing and device memory is never touched, so models of true size take seconds and
// little memory.  A program that holds recorder.cpp records instead of computing.
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
struct Entries {  // what was noted, and how often, in the order of the first
  std::vector<std::pair<Entry, int>> all;

  bool operator==(const Entries& other) const;
  int count() const;
  bool has_work() const;  // and not copies from and to the host alone
  void write(std::FILE* file) const;  // a line for each, as launches.cpp describes them
};

inline bool active = false;  // whether anything is noted
inline Entries entries;
inline std::string phase = "forward";          // "backward" while gradients are computed, "optimizer" from then on
inline int multiprocessors = 132;              // of the card that the library sees: an H100's or H200's
inline std::function<void()> at_synchronize;   // called when the host waits for all that it has queued
size_t peak_memory();                          // bytes that the library has asked for at a time

}  // namespace recorder
