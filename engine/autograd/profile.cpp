#include "engine/autograd/profile.h"

#include <atomic>
#include <chrono>

#include "engine/autograd/finite_guard.h"
#include "engine/base/check.h"

namespace orrery {
namespace {
bool profiling = false;
Profile table;
thread_local int open_calls = 0;
std::atomic<double> open_flops = 0, all_flops = 0;  // whole numbers below 2^53: in any order the same sum
thread_local double inner_seconds = 0;              // of the calls inside the open span: a row counts its own time only

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
}  // namespace

void start_profile() {
  table.clear();
  profiling = true;
}
Profile stop_profile() {
  profiling = false;
  return std::move(table);
}
void count_flops(double flops) {
  all_flops += flops;
  if (profiling) open_flops += flops;
}
double flops_counted() { return all_flops; }

int open_operations() { return open_calls; }

ProfileSpan::ProfileSpan(const char* operation, const char* direction) : current_(operation), active_(profiling) {
  ++open_calls;
  if (!active_) return;
  synchronize();  // a span counts the time of its own kernels
  total_ = &table[{operation, direction}];
  outer_flops_ = open_flops.exchange(0);
  row_.seconds = std::exchange(inner_seconds, 0);  // the outer span's, until this one ends
  start_ = now();
}
ProfileSpan::~ProfileSpan() {
  --open_calls;
  if (!active_) return;
  try {
    synchronize();
  } catch (const Error&) {  // a device that fails here says so to the next call too
  }
  ProfileRow& row = *total_;
  row.calls += 1;
  const double seconds = now() - start_;
  row.seconds += seconds - std::exchange(inner_seconds, row_.seconds + seconds);
  row.flops += open_flops.exchange(outer_flops_);
  row.bytes += row_.bytes;
  row.kept_bytes += row_.kept_bytes;
}
void ProfileSpan::count(std::span<const Tensor> tensors) {
  if (!active_) return;
  for (const Tensor& x : tensors) row_.bytes += x ? static_cast<double>(x.bytes()) : 0;
}

}  // namespace orrery
