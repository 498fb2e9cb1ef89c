// The profile of `train --profile`: time, work and saved bytes per operation, forward and backward.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "engine/system/pool.h"
#include "engine/tensor/tensor.h"

namespace orrery {

struct ProfileRow {
  int64_t calls = 0;
  double seconds = 0;
  double flops = 0;         // multiplications and additions, for operations that count them
  double bytes = 0;         // read and written: operands and results
  int64_t saved_bytes = 0;  // saved for backward, summed over calls
};
using Profile = std::map<std::pair<std::string, std::string>, ProfileRow>;  // by operation and "forward" or "backward"

void start_profile();
Profile stop_profile();
class ProfileSpan {  // also names the operation that holds new allocations
 public:
  ProfileSpan(const char* operation, const char* direction);
  ~ProfileSpan();
  ProfileSpan(const ProfileSpan&) = delete;
  void count(std::span<const Tensor> tensors);  // read or written
  void count_saved(int64_t bytes) { row_.saved_bytes += bytes; }

 private:
  CurrentOperation current_;
  bool active_;
  ProfileRow row_;
  ProfileRow* total_ = nullptr;  // of the operation and direction, found early because a destructor must not allocate
  double start_ = 0;             // seconds of a steady clock
  double flops_ = 0;             // counted before the span
};

}  // namespace orrery
