// What `train --profile` adds up: time, work and kept bytes of every operation, forward and backward.
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
  double flops = 0;        // multiplications and additions, where the operation counts them
  double bytes = 0;        // read and written: the operands and the results
  int64_t kept_bytes = 0;  // held for backward, summed over calls
};
using Profile = std::map<std::pair<std::string, std::string>, ProfileRow>;  // by operation and "forward" or "backward"

void start_profile();
Profile stop_profile();
class ProfileSpan {  // also names the operation that holds what is allocated meanwhile
 public:
  ProfileSpan(const char* operation, const char* direction);
  ~ProfileSpan();
  ProfileSpan(const ProfileSpan&) = delete;
  void count(std::span<const Tensor> tensors);  // read or written
  void keep(int64_t bytes) { row_.kept_bytes += bytes; }

 private:
  CurrentOperation current_;
  bool active_;
  ProfileRow row_;
  ProfileRow* total_ = nullptr;  // of the operation and direction; found beforehand, for a destructor allocates nothing
  double start_ = 0;             // seconds of a steady clock
  double flops_ = 0;             // that had been counted by then
};

}  // namespace orrery
