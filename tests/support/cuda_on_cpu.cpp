// The scheduler: one fiber per CUDA thread.
//
// Compiled without -fsanitize=thread. ThreadSanitizer treats each CUDA thread as a separate thread,
// ordered only by __syncthreads and __syncwarp. So it finds every race in a block that the inputs
// reach, in any order of the fibers.
#include "tests/support/cuda_on_cpu.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "tests/support/bank_conflicts.h"
#include "tests/support/device_memory.h"
#include "tests/support/early_launch.h"
#include "tests/support/fibers.h"
#include "tests/support/scheduler.h"
#include "tests/support/sectors.h"
#include "tests/support/workers.h"

namespace cuda_on_cpu {
namespace {

constexpr unsigned full_warp = ~0u;

// PTX's .aligned: undefined unless all threads of a warp execute the same instruction.
bool is_aligned(Operation operation) {
  return operation == mma || operation == load_matrix || operation == store_matrix || operation == elect;
}

std::atomic<bool> recording = false;
std::mutex recorded_mutex;
std::vector<Site> recorded;
void record(Site site) {
  const std::lock_guard lock(recorded_mutex);
  if (std::find(recorded.begin(), recorded.end(), site) == recorded.end()) recorded.push_back(site);
}

// The block's shared memory: the size of the launch, uninitialized (NaN), and a guard behind it.
class SharedMemory {
 public:
  void prepare(size_t bytes) {
    for (const auto& [data, size] : gaps_) allow(data, size);
    gaps_.clear();
    if (!data_ || bytes != bytes_) {
      if (data_) allow(data_.get() + bytes_, guard);
      void* memory = nullptr;
      if (posix_memalign(&memory, 1024, bytes + guard)) throw std::bad_alloc();
      data_.reset(static_cast<unsigned char*>(memory));
      bytes_ = bytes;
      for (size_t i = 0; i < guard; ++i) data_.get()[bytes_ + i] = guard_byte(i);
      forbidden_ = forbid(data_.get() + bytes_, guard);
    }
    never_set(data_.get(), bytes_);
  }
  void* data(size_t wanted) const {
    if (wanted > bytes_)
      stop("shared memory: the kernel uses " + std::to_string(wanted) + " bytes, its launch asked for " +
           std::to_string(bytes_));
    return data_.get();
  }
  size_t bytes() const { return bytes_; }
  bool holds(const void* data, size_t bytes) const {
    const auto first = reinterpret_cast<uintptr_t>(data), begin = reinterpret_cast<uintptr_t>(data_.get());
    return first >= begin && first + bytes <= begin + bytes_;
  }
  void watch(const void* data, size_t bytes) {
    const std::pair gap{static_cast<const unsigned char*>(data), bytes};
    if (std::find(gaps_.begin(), gaps_.end(), gap) != gaps_.end()) return;
    gaps_.push_back(gap);
    forbid(data, bytes);
  }
  void check() {
    if (forbidden_) return;
    for (const auto& [data, bytes] : gaps_) {
      std::vector<unsigned char> expected(bytes);
      never_set(expected.data(), bytes);
      if (!std::equal(expected.begin(), expected.end(), data))
        stop("shared memory: written between two arrays, from byte " + std::to_string(data - data_.get()) + " on");
    }
    for (size_t i = 0; i < guard; ++i)
      if (std::exchange(data_.get()[bytes_ + i], guard_byte(i)) != guard_byte(i))
        stop("shared memory: written beyond the " + std::to_string(bytes_) + " bytes that the launch asked for");
  }

 private:
  static constexpr size_t guard = 128;
  static unsigned char guard_byte(size_t i) { return i % 4 == 3 ? 0xff : 0xcd; }  // 0xffcdcdcd, also a NaN
  struct Free {
    void operator()(unsigned char* data) const { std::free(data); }
  };
  std::unique_ptr<unsigned char, Free> data_;
  size_t bytes_ = 0;
  std::vector<std::pair<const unsigned char*, size_t>> gaps_;
  bool forbidden_ = false;
};

struct Meeting {  // lanes of a warp that have arrived at a warp-wide operation
  unsigned mask = 0, arrived = 0, generation = 0;
  Operation operation = nullptr;
  Site site;
  char clock[2] = {};  // alternate: a lane that leaves late must not acquire from lanes that arrive at the next meeting
};
struct Warp {
  unsigned live = 0, ready = 0;
  void* argument[32];
  Meeting meeting[32];  // indexed by the lowest lane of the mask
};
struct WarpGroup {  // a warp group, and how many of its threads have arrived at a step of their products
  unsigned arrived = 0;
  GroupStep step = GroupStep::start;
  Site site;
  void* argument[threads_of_group];
  GroupProducts products;
  int registers = 0;  // of each thread
};
struct CudaThread {
  Fiber fiber;
  dim3 index;
  Site waits_at;
  Copies copies;
  TileStores stores;
  bool begun = false;  // it called group_products_begin() since products of its group were done
};

class Worker;
thread_local Worker* worker = nullptr;

class Worker {  // an OS thread that runs one block at a time
 public:
  Worker() { main_.fiber.adopt_os_thread(); }

  void run_block(const Launch& launch, int64_t index);
  void barrier(Site site);
  void wait_for_earlier(Site site);
  void allow_next(Site site);
  void meet(unsigned mask, Operation operation, void* argument, bool orders_memory, Site site);
  void meet_group(GroupStep step, void* argument, Site site);
  void begin_products() { threads_[static_cast<size_t>(current_)]->begun = true; }
  void* shared_memory(size_t bytes) const { return shared_.data(bytes); }
  bool holds_shared(const void* data, size_t bytes) const { return shared_.holds(data, bytes); }
  void watch_gap(const void* data, size_t bytes) { shared_.watch(data, bytes); }
  Copies& copies() { return threads_[static_cast<size_t>(current_)]->copies; }
  TileStores& stores() { return threads_[static_cast<size_t>(current_)]->stores; }
  HiddenWrites& hidden_writes() { return hidden_writes_; }
  NamedBarriers& named_barriers() { return named_barriers_; }
  Arrivals& arrivals() { return arrivals_; }
  unsigned running_thread() const { return static_cast<unsigned>(current_); }
  void park(Site site) {
    threads_[static_cast<size_t>(current_)]->waits_at = site;
    yield();
  }
  void pause() {
    wake(running_thread());
    turn_to(pick());
  }
  void wake(unsigned thread) {
    warps_[thread / 32].ready |= 1u << thread % 32;
    ready_warps_ |= 1u << thread / 32;
  }
  void record_row(const void* row) {
    if (counts_banks_) banks_.record_row(static_cast<unsigned>(current_), row);
  }
  void record_copy(const void* to, const void* from, unsigned bytes, unsigned valid, Site site) {
    if (valid) ClosedMemory::access(from);
    if (!counts_banks_) return;
    banks_.record_copy(static_cast<unsigned>(current_), to, bytes, site);
    sectors_.record(static_cast<unsigned>(current_), from, valid, static_cast<uintptr_t>(site.line));
  }
  void record_access(const void* data, size_t bytes, const void* instruction) {
    if (counts_banks_ && current_ != no_thread && DeviceMemory::owns(data))
      sectors_.record(static_cast<unsigned>(current_), data, bytes, reinterpret_cast<uintptr_t>(instruction));
  }

 private:
  static void entry();
  void prepare_threads(const Launch& launch, int64_t index);
  void prepare_warps(int count);
  void check_waits(int count) const;
  void leave_kernel();
  void open_barrier();
  std::string waiting_threads() const;
  void do_group_step(WarpGroup& group, unsigned first_thread);
  void set_registers(WarpGroup& group, int registers);
  void check_registers() const;
  void close(unsigned warp, Meeting& meeting);
  unsigned choose(unsigned mask);
  uint32_t next_random();
  int pick();
  void yield();
  void turn_to(int next);

  static constexpr int no_thread = -1;
  CudaThread main_;
  std::vector<std::unique_ptr<CudaThread>> threads_;
  std::vector<Warp> warps_;
  std::vector<WarpGroup> groups_;
  SharedMemory shared_;
  Arrivals arrivals_;
  HiddenWrites hidden_writes_;
  NamedBarriers named_barriers_;
  BankCounter banks_;
  SectorCounter sectors_;
  bool counts_banks_ = false;
  const Launch* launch_ = nullptr;
  int current_ = no_thread, live_ = 0, waiting_ = 0;
  int waited_ = 0;       // threads that have called wait_for_earlier
  bool allows_ = false;  // a thread has called allow_next
  unsigned ready_warps_ = 0, phase_ = 0;
  uint32_t random_ = 1;
  bool visible_ = true, visible_here_ = true;  // all copies are visible: at the last barrier; so far at the current one
  Site barrier_site_, took_registers_;
  char start_ = 0, end_ = 0, barrier_clock_[2] = {};
  std::exception_ptr error_;
};

void Worker::prepare_threads(const Launch& launch, int64_t index) {
  const dim3 g = launch.grid, b = launch.block;
  const auto at = static_cast<uint64_t>(index);
  gridDim = g, blockDim = b;
  blockIdx = {static_cast<unsigned>(at % g.x), static_cast<unsigned>(at / g.x % g.y),
              static_cast<unsigned>(at / g.x / g.y)};
  for (unsigned t = 0; t < b.x * b.y * b.z; ++t) {
    if (t == threads_.size()) {
      threads_.push_back(std::make_unique<CudaThread>());
      threads_.back()->fiber.prepare(static_cast<int>(t), entry);
    }
    threads_[t]->index = {t % b.x, t / b.x % b.y, t / b.x / b.y};
    threads_[t]->copies.forget(), threads_[t]->stores.forget(), threads_[t]->begun = false;
  }
}

void Worker::prepare_warps(int count) {
  warps_.resize(static_cast<size_t>(count + 31) / 32);
  for (size_t w = 0; w < warps_.size(); ++w) {
    const int lanes = std::min(32, count - static_cast<int>(w) * 32);
    warps_[w].live = warps_[w].ready = full_warp >> (32 - lanes);
    for (Meeting& meeting : warps_[w].meeting) meeting.arrived = 0;
  }
  ready_warps_ = full_warp >> (32 - warps_.size());
  groups_.resize(static_cast<size_t>(count) / threads_of_group);
  for (WarpGroup& group : groups_)
    group.arrived = 0, group.products.forget(), group.registers = std::min(65536 / count / 8 * 8, 248);
  visible_ = visible_here_ = true;
}

void Worker::run_block(const Launch& launch, int64_t index) {
  worker = this;
  launch_ = &launch;
  counts_banks_ = counts_bank_traffic && index == 0;
  if (counts_banks_) banks_ = {}, sectors_ = {};  // left by a block that ended with a fault
  const int count = static_cast<int>(launch.block.x * launch.block.y * launch.block.z);
  prepare_threads(launch, index);
  prepare_warps(count);
  shared_.prepare(launch.shared_bytes);
  arrivals_.forget(), hidden_writes_.forget(), named_barriers_.forget();
  live_ = count, waiting_ = 0;
  waited_ = 0, allows_ = false;
  if (options.closed_memory) ClosedMemory::close();
  random_ = options.seed * 2654435761u + static_cast<uint32_t>(index) * 40503u + 1;
  release(&start_);
  turn_to(pick());
  acquire(&end_);
  ClosedMemory::open();
  if (error_) {
    for (int t = 0; t < count; ++t) {
      Fiber& fiber = threads_[static_cast<size_t>(t)]->fiber;
      Fiber::abandon(fiber, main_.fiber, &end_);
      fiber.prepare(t, entry);
    }
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
  for (const WarpGroup& group : groups_)
    if (group.products.in_flight()) stop("a warp group leaves its kernel before its products are done");
  arrivals_.check_end();
  check_registers();
  if (counts_banks_) banks_.end_block(), sectors_.end_block();
  shared_.check();
  if (options.closed_memory) check_waits(count);
}

void Worker::check_waits(int count) const {
  if (ClosedMemory::was_accessed()) stop("device memory is accessed before the block's wait_for_earlier()");
  if (waited_ < count)
    stop("wait_for_earlier(): " + std::to_string(count - waited_) + " of " + std::to_string(count) +
         " threads leave the kernel without it");
  if (!allows_) stop("allow_next(): a block leaves the kernel without it");
}

void Worker::entry() {
  Fiber::started();
  for (;;) {
    acquire(&worker->start_);
    try {
      worker->launch_->body.call(worker->launch_->body.object);
      worker->stores().check_end();
    } catch (...) {
      worker->error_ = std::current_exception();
    }
    release(&worker->end_);
    if (worker->error_)
      worker->turn_to(no_thread);  // the other fibers are abandoned
    else
      worker->leave_kernel();
  }
}

void Worker::leave_kernel() {  // the other threads no longer wait for this thread
  const unsigned w = static_cast<unsigned>(current_) / 32;
  warps_[w].live &= ~(1u << current_ % 32);
  if (--live_ == 0) return turn_to(no_thread);
  if (waiting_ == live_) open_barrier();
  try {
    for (Meeting& meeting : warps_[w].meeting)
      if (meeting.arrived && meeting.arrived == (meeting.mask & warps_[w].live)) close(w, meeting);
    yield();
  } catch (...) {  // no other thread can run
    error_ = std::current_exception();
    turn_to(no_thread);
  }
}

void Worker::barrier(Site site) {
  if (is_dropped(site)) return;
  if (waiting_ == 0)
    barrier_site_ = site;
  else if (barrier_site_ != site)
    stop("__syncthreads: a block waits at two places: " + text(barrier_site_) + " and " + text(site));
  char* const clock = &barrier_clock_[phase_ & 1];
  visible_here_ = visible_here_ && copies().visible();
  release(clock);
  threads_[static_cast<size_t>(current_)]->waits_at = site;
  if (++waiting_ == live_) open_barrier();
  yield();
  acquire(clock);
}
// With closed memory a block's threads wait for each other, so that the memory opens for all at once.
void Worker::wait_for_earlier(Site site) {
  if (!options.closed_memory || is_dropped(site)) return;
  ++waited_;
  barrier(site);
  ClosedMemory::open();
}
void Worker::allow_next(Site site) {
  if (options.closed_memory && !is_dropped(site)) allows_ = true;
}
void Worker::open_barrier() {
  waiting_ = 0, ++phase_;
  visible_ = std::exchange(visible_here_, true);
  for (size_t w = 0; w < warps_.size(); ++w) {
    warps_[w].ready = warps_[w].live;
    if (warps_[w].live) ready_warps_ |= 1u << w;
  }
}

void Worker::meet(unsigned mask, Operation operation, void* argument, bool orders_memory, Site site) {
  const unsigned lane = static_cast<unsigned>(current_) % 32, w = static_cast<unsigned>(current_) / 32;
  Warp& warp = warps_[w];
  if (!(mask >> lane & 1u)) stop("a lane is not in the mask that it names, at " + text(site));
  Meeting& meeting = warp.meeting[std::countr_zero(mask)];
  if (!meeting.arrived) meeting.mask = mask, meeting.operation = operation, meeting.site = site;
  if (meeting.mask != mask || meeting.operation != operation)
    stop("lanes of a warp meet in different operations, at " + text(site));
  if (is_aligned(operation) && meeting.site != site)
    stop("parts of a warp call mma, ldmatrix, stmatrix or elect at two places: " + text(meeting.site) + " and " +
         text(site));
  char* const clock = &meeting.clock[meeting.generation & 1];
  if (orders_memory) release(clock);
  warp.argument[lane] = argument;
  meeting.arrived |= 1u << lane;
  threads_[static_cast<size_t>(current_)]->waits_at = site;
  if (meeting.arrived == (mask & warp.live)) close(w, meeting);
  yield();
  if (orders_memory) acquire(clock);
}
void Worker::close(unsigned w, Meeting& meeting) {
  if (is_aligned(meeting.operation) && meeting.arrived != full_warp)
    stop("mma, ldmatrix, stmatrix or elect without all 32 lanes of a warp, at " + text(meeting.site));
  if ((meeting.operation == load_matrix || meeting.operation == store_matrix) && counts_banks_)
    banks_.access_matrices(w);
  if (meeting.operation) meeting.operation(warps_[w].argument, meeting.arrived);
  warps_[w].ready |= meeting.arrived;
  ready_warps_ |= 1u << w;
  meeting.arrived = 0, ++meeting.generation;
}

void Worker::meet_group(GroupStep step, void* argument, Site site) {
  const auto thread = static_cast<unsigned>(current_), first_warp = thread / threads_of_group * 4;
  if (thread / threads_of_group >= groups_.size())
    stop("a product of a warp group in a block that has no 128 threads for it, at " + text(site));
  WarpGroup& group = groups_[thread / threads_of_group];
  if (group.arrived == 0) group.step = step, group.site = site;
  if (group.step != step || group.site != site)
    stop("parts of a warp group are at two places: " + text(group.site) + " and " + text(site));
  if (step == GroupStep::start && !visible_)
    stop("a product of a warp group reads copies that no shared_written() has shown it before the barrier, at " +
         text(site));
  group.argument[thread % threads_of_group] = argument;
  threads_[thread]->waits_at = site;
  if (++group.arrived == threads_of_group) {
    do_group_step(group, thread / threads_of_group * threads_of_group);
    for (unsigned w = first_warp; w < first_warp + 4; ++w) warps_[w].ready = full_warp, ready_warps_ |= 1u << w;
  }
  yield();
}
void Worker::do_group_step(WarpGroup& group, unsigned first_thread) {
  const NotOfThread access;
  group.arrived = 0;
  const auto first = threads_.begin() + first_thread, end = first + threads_of_group;
  const auto begun = [](const auto& thread) { return thread->begun; };
  if (group.step == GroupStep::start)
    group.products.start(group.argument, static_cast<unsigned char*>(shared_.data(0)), shared_.bytes(),
                         std::all_of(first, end, begun), group.site);
  else if (group.step == GroupStep::commit)
    group.products.commit();
  else if (const int number = *static_cast<const int*>(group.argument[0]); group.step != GroupStep::wait)
    set_registers(group, number);
  else if (group.products.wait(number))
    std::for_each(first, end, [](const auto& thread) { thread->begun = false; });
}

void Worker::set_registers(WarpGroup& group, int registers) {
  const bool takes = group.step == GroupStep::take;
  if (registers % 8 || registers < 24 || registers > 240 || (registers < group.registers) == takes)
    stop("registers: a warp group " + std::string(takes ? "takes " : "gives ") + std::to_string(registers) + " after " +
         std::to_string(group.registers) + ", at " + text(group.site));
  group.registers = registers;
  if (takes) took_registers_ = group.site;
}
void Worker::check_registers() const {
  int all = 0;
  for (const WarpGroup& group : groups_) all += group.registers * static_cast<int>(threads_of_group);
  if (all > 65536)
    stop("registers: the warp groups of a block take " + std::to_string(all) + " of 65536, the last at " +
         text(took_registers_));
}

uint32_t Worker::next_random() {
  random_ ^= random_ << 13, random_ ^= random_ >> 17, random_ ^= random_ << 5;
  return random_;
}
unsigned Worker::choose(unsigned mask) {
  if (options.order == Order::forward) return static_cast<unsigned>(std::countr_zero(mask));
  if (options.order == Order::reverse) return 31 - static_cast<unsigned>(std::countl_zero(mask));
  const unsigned turn = next_random() & 31;
  return (static_cast<unsigned>(std::countr_zero(std::rotr(mask, static_cast<int>(turn)))) + turn) & 31;
}
int Worker::pick() {
  const unsigned w = choose(ready_warps_), lane = choose(warps_[w].ready);
  warps_[w].ready &= ~(1u << lane);
  if (!warps_[w].ready) ready_warps_ &= ~(1u << w);
  return static_cast<int>(w * 32 + lane);
}
void Worker::yield() {
  while (!ready_warps_ && arrivals_.land_copy(next_random())) {
  }
  if (!ready_warps_) stop("deadlock: " + std::to_string(live_) + " threads wait: " + waiting_threads());
  turn_to(pick());
}
// Returns the sites of the threads that are live, each with the number of threads.
std::string Worker::waiting_threads() const {
  std::vector<std::pair<std::string, int>> sites;
  for (size_t t = 0; t < warps_.size() * 32; ++t) {
    if (!(warps_[t / 32].live >> t % 32 & 1u)) continue;
    const std::string at = text(threads_[t]->waits_at) + arrivals_.missing(static_cast<unsigned>(t));
    if (sites.empty() || sites.back().first != at) sites.push_back({at, 0});
    ++sites.back().second;
  }
  std::string result;
  for (const auto& [at, threads] : sites)
    result += (result.empty() ? "" : "; ") + std::to_string(threads) + " at " + at;
  return result;
}
void Worker::turn_to(int next) {
  if (next == current_) return;
  CudaThread& from = current_ == no_thread ? main_ : *threads_[static_cast<size_t>(current_)];
  CudaThread& to = next == no_thread ? main_ : *threads_[static_cast<size_t>(next)];
  current_ = next;
  threadIdx = to.index;
  Fiber::change(from.fiber, to.fiber);
}

std::vector<int64_t> block_order(int64_t blocks) {
  std::vector<int64_t> order(static_cast<size_t>(blocks));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (options.order == Order::reverse) std::reverse(order.begin(), order.end());
  if (options.order == Order::random)
    for (uint64_t state = options.seed, i = order.size(); i > 1; --i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      std::swap(order[i - 1], order[(state >> 33) % i]);
    }
  return order;
}

}  // namespace

void run(const Launch& launch) {
  const int64_t blocks = int64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  const std::vector<int64_t> order = block_order(blocks);
  std::atomic<int64_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  const auto work = [&] {
    thread_local Worker mine;
    for (int64_t i; (i = next++) < blocks;) try {
        mine.run_block(launch, order[static_cast<size_t>(i)]);
      } catch (...) {
        const std::lock_guard lock(mutex);
        error = std::current_exception();
        next = blocks;
      }
  };
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  std::optional<ClosedMemory> closed_memory;
  if (options.closed_memory) closed_memory.emplace();
  const int workers = options.closed_memory ? 1 : options.workers > 0 ? options.workers : std::clamp(cores, 1, 16);
  const int helpers = static_cast<int>(std::min<int64_t>(workers, blocks)) - 1;
  run_on_workers(helpers, {&work, [](const void* w) { (*static_cast<decltype(&work)>(w))(); }});
  if (error) std::rethrow_exception(error);
}

void record_access(const void* data, size_t bytes, const void* instruction) {
  if (counts_bank_traffic && worker) worker->record_access(data, bytes, instruction);
}
bool is_dropped(Site site) {
  if (recording) record(site);
  return options.dropped.line == site.line && options.dropped == site;
}
unsigned running_thread() { return worker->running_thread(); }
void park(Site site) { worker->park(site); }
void wake(unsigned thread) { worker->wake(thread); }
void pause() { worker->pause(); }
Arrivals& arrivals() { return worker->arrivals(); }
TileStores& tile_stores() { return worker->stores(); }
NamedBarriers& named_barriers() { return worker->named_barriers(); }
HiddenWrites& hidden_writes() { return worker->hidden_writes(); }
void* shared_memory(size_t bytes) { return worker->shared_memory(bytes); }
bool holds_shared(const void* data, size_t bytes) { return worker->holds_shared(data, bytes); }
void watch_gap(const void* data, size_t bytes) { worker->watch_gap(data, bytes); }
void block_barrier(Site site) {
  if (!is_dropped(site)) hidden_writes().meet();
  worker->barrier(site);
}
void wait_for_earlier(Site site) { worker->wait_for_earlier(site); }
void allow_next(Site site) { worker->allow_next(site); }
void group_operation(GroupStep step, void* argument, Site site) {
  const bool droppable = step == GroupStep::commit || step == GroupStep::wait;
  if (!droppable || !is_dropped(site)) worker->meet_group(step, argument, site);
}
void begin_group_products(Site site) {
  if (!is_dropped(site)) worker->begin_products();
}
unsigned shared_address(const void* p) {
  return static_cast<unsigned>(static_cast<const unsigned char*>(p) -
                               static_cast<const unsigned char*>(worker->shared_memory(0)));
}
void warp_operation(unsigned mask, Operation operation, void* argument, Site site) {
  worker->meet(mask, operation, argument, false, site);
}
void warp_barrier(unsigned mask, Site site) {
  if (is_dropped(site)) return;
  hidden_writes().meet();
  worker->meet(mask, nullptr, nullptr, true, site);
}

void check_matrix_row(const char* instruction, const void* row, Site site) {
  const std::string name = instruction;
  if (reinterpret_cast<uintptr_t>(row) % 16) stop(name + ": an address is not a multiple of 16, at " + text(site));
  if (!worker->holds_shared(row, 16)) stop(name + ": an address is outside shared memory, at " + text(site));
  worker->record_row(row);
}
Copies& copies() { return worker->copies(); }
void Copies::check_copy(const void* to, const void* from, unsigned bytes, unsigned valid, Site site) {
  const auto aligned = [bytes](const void* p) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; };
  if (!aligned(to) || !aligned(from))
    stop("copy to shared memory: an address is not a multiple of " + std::to_string(bytes) + ", at " + text(site));
  if (valid > bytes)
    stop("copy to shared memory: " + std::to_string(valid) + " bytes; at most " + std::to_string(bytes) +
         " are copied at once, at " + text(site));
  if (!worker->holds_shared(to, bytes))
    stop("copy to shared memory: the destination is outside of it, at " + text(site));
  worker->record_copy(to, from, bytes, valid, site);
}

std::vector<Site> barriers_reached(const std::function<void()>& run) {
  recorded.clear();
  recording = true;
  run();
  recording = false;
  return recorded;
}

}  // namespace cuda_on_cpu
