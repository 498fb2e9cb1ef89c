#include "tests/support/arrivals.h"

#include <algorithm>
#include <utility>

#include "tests/support/cuda_on_cpu.h"
#include "tests/support/fibers.h"
#include "tests/support/scheduler.h"

namespace cuda_on_cpu {
namespace {
constexpr uint64_t initialized = 0x0badba22'1e20ba22;  // in the barrier's memory, to find that it is overwritten
std::string count(int64_t n, const std::string& unit) { return std::to_string(n) + unit + (n == 1 ? "" : "s"); }
}  // namespace

void Arrivals::init(void* barrier, int arrivals, Site site) {
  const NotOfThread access;
  if (is_dropped(site)) return;
  if (reinterpret_cast<uintptr_t>(barrier) % 8 || !holds_shared(barrier, 8))
    stop("transaction barrier: it must be 8 aligned bytes of shared memory, at " + text(site));
  if (barriers_.contains(barrier)) stop("transaction barrier: initialized twice, at " + text(site));
  if (arrivals < 1) stop("transaction barrier: " + count(arrivals, " arrival") + "; at least 1, at " + text(site));
  std::memcpy(barrier, &initialized, 8);
  barriers_.insert({barrier, {.site = site, .owner = running_thread(), .arrivals = arrivals, .pending = arrivals}});
}
void Arrivals::show(Site site) {
  if (is_dropped(site)) return;
  for (auto& [at, barrier] : barriers_) barrier.shown |= barrier.owner == running_thread();
}

Arrivals::Barrier& Arrivals::find(void* barrier, Site site) {
  const auto found = barriers_.find(barrier);
  if (found == barriers_.end()) stop("transaction barrier: used before its initialization, at " + text(site));
  if (std::memcmp(barrier, &initialized, 8)) stop("transaction barrier: overwritten, as found at " + text(site));
  return found->second;
}

void Arrivals::arrive(void* barrier, int64_t bytes, Site site) {
  if (is_dropped(site)) return;
  add_arrival(find(barrier, site), bytes, site);
  pause();
}
void Arrivals::add_arrival(Barrier& b, int64_t bytes, Site site) {
  const NotOfThread access;
  if (std::find(b.arrived.begin(), b.arrived.end(), running_thread()) != b.arrived.end())
    stop("transaction barrier: a thread arrives twice in phase " + std::to_string(b.phase) + ", at " + text(site));
  b.arrived.push_back(running_thread());
  hidden_writes().meet();
  release(&b.clock[b.phase & 1]);
  b.bytes += bytes, --b.pending;
  complete_if_done(b, site);
}
void Arrivals::complete_if_done(Barrier& b, Site site) {
  if (b.pending > 0) return;
  if (b.bytes < 0)
    stop("transaction barrier: copies bring " + count(-b.bytes, " byte") + " more than phase " +
         std::to_string(b.phase) + " expects, at " + text(site));
  if (b.bytes > 0) return;
  ++b.phase, b.pending = b.arrivals;
  b.arrived.clear();
  for (const unsigned thread : std::exchange(b.waiting, {})) wake(thread);
}

void Arrivals::wait(void* barrier, unsigned parity, Site site) {
  if (is_dropped(site)) return;
  Barrier& b = find(barrier, site);
  const int64_t phase = next_phase(b, parity, site);
  if (phase == b.phase) park(site);
  if (phase >= 0) acquire(&b.clock[phase & 1]);
}
int64_t Arrivals::next_phase(Barrier& b, unsigned parity, Site site) {
  const NotOfThread access;
  const int64_t phase = (b.phase & 1) == parity ? b.phase : b.phase - 1;
  const auto [waited, first] = b.waited.insert({running_thread(), -1});
  const int64_t next = waited->second + 1;
  if (phase != next && !(first && phase == -1))
    stop("transaction barrier: a wait with parity " + std::to_string(parity) + " is for phase " +
         std::to_string(phase) + ", but the next phase of this thread is " + std::to_string(next) + ", at " +
         text(site));
  waited->second = phase;
  if (phase == b.phase) b.waiting.push_back(running_thread());
  return phase;
}

void Arrivals::start_copy(void* barrier, int64_t bytes, std::function<void()> land_it, Site site) {
  Barrier& b = find(barrier, site);
  if (!b.shown) stop("transaction barrier: no fence shows its initialization to copies, at " + text(site));
  copies_.push_back({&b, bytes, std::move(land_it), site});
  if (options.landing == Landing::late) return;
  land(copies_.back());
  copies_.pop_back();
}
void Arrivals::land(const Copy& copy) {
  copy.land();
  copy.barrier->bytes -= copy.bytes;
  complete_if_done(*copy.barrier, copy.site);
}
bool Arrivals::land_copy(uint32_t random) {
  const NotOfThread access;
  std::vector<size_t> candidates;
  for (size_t i = 0; i < copies_.size(); ++i)
    if (!copies_[i].barrier->waiting.empty()) candidates.push_back(i);
  if (candidates.empty()) return false;
  const size_t last = candidates.size() - 1;
  const size_t chosen = options.order == Order::forward   ? 0
                        : options.order == Order::reverse ? last
                                                          : random % (last + 1);
  const auto copy = copies_.begin() + static_cast<std::ptrdiff_t>(candidates[chosen]);
  land(*copy);
  copies_.erase(copy);
  return true;
}

std::string Arrivals::missing(unsigned thread) const {
  for (const auto& [at, b] : barriers_)
    if (std::find(b.waiting.begin(), b.waiting.end(), thread) != b.waiting.end())
      return " for phase " + std::to_string(b.phase) + " of the barrier initialized at " + text(b.site) +
             ", which lacks " + (b.pending ? count(b.pending, " arrival") : count(b.bytes, " byte"));
  return "";
}
void Arrivals::check_end() const {
  if (!copies_.empty()) stop("a block ends before a copy to its shared memory lands, at " + text(copies_[0].site));
}
void Arrivals::forget() { barriers_.clear(), copies_.clear(); }

void NamedBarriers::meet(int number, int threads, bool waits, Site site) {
  if (is_dropped(site)) return;
  char* const clock = arrive(number, threads, waits, site);
  if (!waits) return pause();
  park(site);
  acquire(clock);
}
char* NamedBarriers::arrive(int number, int threads, bool waits, Site site) {
  const NotOfThread access;
  const auto refuse = [&](const std::string& what) {
    stop("named barrier " + std::to_string(number) + ": " + what + ", at " + text(site));
  };
  if (number < 1 || number > 15) refuse("barriers 1 to 15 exist");
  if (threads < 32 || threads % 32) refuse(std::to_string(threads) + " threads; a multiple of 32");
  Barrier& b = barriers_[number];
  if (b.arrived.empty()) b.threads = threads;
  if (b.threads != threads) refuse(std::to_string(threads) + " threads, elsewhere " + std::to_string(b.threads));
  if (std::find(b.arrived.begin(), b.arrived.end(), running_thread()) != b.arrived.end())
    refuse("a thread arrives twice before it completes");
  char* const clock = &b.clock[b.completions & 1];
  release(clock);
  hidden_writes().meet();
  b.arrived.push_back(running_thread());
  if (waits) b.waiting.push_back(running_thread());
  if (static_cast<int>(b.arrived.size()) == threads) {
    b.arrived.clear(), ++b.completions;
    for (const unsigned thread : std::exchange(b.waiting, {})) wake(thread);
  }
  return clock;
}

}  // namespace cuda_on_cpu
