#include "engine/system/parallel.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "engine/system/pool.h"
#include "engine/types/check.h"

#if defined(__SANITIZE_THREAD__)
#define ORRERY_STANDARD_THREADS  // the packaged oneTBB is not instrumented; std::thread is
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ORRERY_STANDARD_THREADS
#endif
#endif

#if defined(ORRERY_STANDARD_THREADS)
#include <exception>
#else
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_for.h>
#endif

namespace orrery {
namespace {

thread_local bool in_loop = false;  // true: this thread runs a chunk of a loop

// A scope in which a thread runs chunks of a loop for `operation`.
class LoopScope {
 public:
  explicit LoopScope(const char* operation) : named_(operation) { in_loop = true; }
  ~LoopScope() { in_loop = before_; }

 private:
  CurrentOperation named_;
  bool before_ = in_loop;
};

#if defined(ORRERY_STANDARD_THREADS)

int threads = static_cast<int>(std::thread::hardware_concurrency());

void limit_threads(int) {}

template <class RunChunk>
void run_chunks(int64_t chunks, const RunChunk& run_chunk) {
  std::atomic<int64_t> next = 0;
  std::exception_ptr error;
  std::atomic<bool> failed = false;
  std::vector<std::thread> workers;
  workers.reserve(static_cast<size_t>(threads));
  const auto work = [&, operation = current_operation()] {
    const LoopScope guard(operation);
    try {
      for (int64_t i; !failed && (i = next++) < chunks;) run_chunk(i);
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
  };
  try {
    for (int t = 0; t < threads; ++t) workers.emplace_back(work);
  } catch (const std::system_error&) {  // the threads that did start do all the work
    check(!workers.empty(), "threads: the system cannot start any; use --threads=1, or raise the limit of ulimit -u");
  }
  for (std::thread& worker : workers) worker.join();
  if (error) std::rethrow_exception(error);
}

#else

int threads = tbb::info::default_concurrency();
std::atomic<int> verified_threads = 1;  // number of threads that have run at the same time

void limit_threads(int count) {
  static std::unique_ptr<tbb::global_control> limit;
  limit = std::make_unique<tbb::global_control>(tbb::global_control::max_allowed_parallelism, count);
}

// Starts all threads once, because oneTBB corrupts its own state when the system refuses a thread.
void verify_threads() {
  std::atomic<bool> done = false;
  std::vector<std::thread> others;
  const auto join_all = [&] {
    done = true;
    done.notify_all();
    for (std::thread& other : others) other.join();
  };
  try {
    others.reserve(static_cast<size_t>(threads));
    for (int i = 1; i < threads; ++i) others.emplace_back([&] { done.wait(false); });
  } catch (const std::bad_alloc&) {
    join_all();
    throw;
  } catch (const std::exception& error) {
    join_all();
    fail("threads: the system cannot start ", threads, " threads (", error.what(),
         "); use --threads=1, or raise the limits of ulimit -u and ulimit -v");
  }
  join_all();
  verified_threads = threads;
}

template <class RunChunk>
void run_chunks(int64_t chunks, const RunChunk& run_chunk) {
  if (verified_threads < threads) verify_threads();
  const char* const operation = current_operation();
  tbb::parallel_for(tbb::blocked_range<int64_t>(0, chunks, 1), [&](const tbb::blocked_range<int64_t>& range) {
    const LoopScope guard(operation);
    for (int64_t i = range.begin(); i < range.end(); ++i) run_chunk(i);
  });
}

#endif

}  // namespace

int thread_count() { return threads; }
void set_thread_count(int count) {
  check(count >= 1, "threads is ", count, "; it must be at least 1");
  threads = count;
  limit_threads(count);
}
void parallel_for(int64_t n, int64_t grain, RangeFunction f) {
  const int64_t chunks = (n + grain - 1) / grain;
  const auto run_chunk = [&](int64_t i) { f(i * grain, std::min(n, (i + 1) * grain)); };
  if (chunks > 1 && threads > 1 && !in_loop) return run_chunks(chunks, run_chunk);
  for (int64_t i = 0; i < chunks; ++i) run_chunk(i);
}

}  // namespace orrery
