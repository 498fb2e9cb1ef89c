// The profile of `train --profile`: time, FLOPs and bytes per operation, forward and backward.
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
  double flops = 0;         // 2 per multiply-add of matrix products and attention; 0 for other operations
  double bytes = 0;         // size of operands and results, summed over calls
  int64_t saved_bytes = 0;  // size of the values saved for backward, summed over calls
};
using Profile = std::map<std::pair<std::string, std::string>, ProfileRow>;  // by operation and "forward" or "backward"

void start_profile();    // clears the profile; all threads add to it
Profile stop_profile();  // returns the profile
class ProfileSpan {      // measures one operation while it lives; also names it as the holder of new allocations
 public:
  ProfileSpan(const char* operation, const char* direction);
  ~ProfileSpan();
  ProfileSpan(const ProfileSpan&) = delete;
  void count(std::span<const Tensor> tensors);  // adds the bytes of operands or results
  void count_saved(int64_t bytes) { row_.saved_bytes += bytes; }

 private:
  CurrentOperation current_;
  bool active_;
  ProfileRow row_;
  ProfileRow* total_ = nullptr;  // row of the profile, found early because a destructor must not allocate
  double start_ = 0;             // seconds of a steady clock
  double flops_ = 0;             // FLOPs counted before the span
};

}  // namespace orrery
