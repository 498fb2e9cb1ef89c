#include "engine/autograd/profile.h"

#include <chrono>

#include "engine/autograd/finite_guard.h"
#include "engine/tensor/flops.h"
#include "engine/types/check.h"

namespace orrery {
namespace {
bool profiling = false;
Profile table;
thread_local int open_calls = 0;
thread_local double inner_seconds = 0, inner_flops = 0;  // sums over calls inside the open span, not counted in its row

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
int open_operations() { return open_calls; }

ProfileSpan::ProfileSpan(const char* operation, const char* direction) : current_(operation), active_(profiling) {
  ++open_calls;
  if (!active_) return;
  synchronize();  // so that a span counts only its own kernels
  total_ = &table[{operation, direction}];
  // Saves the outer span's sums until this span ends.
  row_.seconds = std::exchange(inner_seconds, 0);
  row_.flops = std::exchange(inner_flops, 0);
  flops_ = flops_counted();
  start_ = now();
}
ProfileSpan::~ProfileSpan() {
  --open_calls;
  if (!active_) return;
  try {
    synchronize();
  } catch (const Error&) {  // the next call reports the failed device too
  }
  ProfileRow& row = *total_;
  row.calls += 1;
  const double seconds = now() - start_;
  row.seconds += seconds - std::exchange(inner_seconds, row_.seconds + seconds);
  const double flops = flops_counted() - flops_;
  row.flops += flops - std::exchange(inner_flops, row_.flops + flops);
  row.bytes += row_.bytes;
  row.saved_bytes += row_.saved_bytes;
}
void ProfileSpan::count(std::span<const Tensor> tensors) {
  if (!active_) return;
  for (const Tensor& x : tensors) row_.bytes += x ? static_cast<double>(x.bytes()) : 0;
}

}  // namespace orrery
