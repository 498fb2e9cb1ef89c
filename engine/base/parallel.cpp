#include "engine/base/parallel.h"

#include <algorithm>
#include <memory>
#include <thread>

#include "engine/base/check.h"

#if defined(__SANITIZE_THREAD__)
#define ORRERY_STANDARD_THREADS  // the packaged oneTBB is not instrumented; std::thread is
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ORRERY_STANDARD_THREADS
#endif
#endif

#if defined(ORRERY_STANDARD_THREADS)
#include <atomic>
#include <exception>
#include <vector>
#else
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_for.h>
#endif

namespace orrery {

#if defined(ORRERY_STANDARD_THREADS)

namespace {
int threads = static_cast<int>(std::thread::hardware_concurrency());
thread_local bool inside = false;  // a nested loop runs serially
}  // namespace

int thread_count() { return threads; }
void set_thread_count(int count) {
  check(count >= 1, "threads: ", count, " given; at least 1 is needed");
  threads = count;
}
void parallel_for(int64_t n, int64_t grain, RangeFunction f) {
  const int64_t pieces = (n + grain - 1) / grain;
  const auto piece = [&](int64_t i) { f(i * grain, std::min(n, (i + 1) * grain)); };
  if (pieces <= 1 || threads == 1 || inside) {
    for (int64_t i = 0; i < pieces; ++i) piece(i);
    return;
  }
  std::atomic<int64_t> next = 0;
  std::exception_ptr error;
  std::atomic<bool> failed = false;
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t)
    workers.emplace_back([&] {
      inside = true;
      try {
        for (int64_t i; !failed && (i = next++) < pieces;) piece(i);
      } catch (...) {
        if (!failed.exchange(true)) error = std::current_exception();
      }
    });
  for (std::thread& worker : workers) worker.join();
  if (error) std::rethrow_exception(error);
}

#else

namespace {
std::unique_ptr<tbb::global_control> limit;
int threads = tbb::info::default_concurrency();
}  // namespace

int thread_count() { return threads; }
void set_thread_count(int count) {
  check(count >= 1, "threads: ", count, " given; at least 1 is needed");
  threads = count;
  limit = std::make_unique<tbb::global_control>(tbb::global_control::max_allowed_parallelism, count);
}
void parallel_for(int64_t n, int64_t grain, RangeFunction f) {
  const int64_t pieces = (n + grain - 1) / grain;
  if (pieces <= 1 || threads == 1) {
    for (int64_t i = 0; i < pieces; ++i) f(i * grain, std::min(n, (i + 1) * grain));
    return;
  }
  try {
    tbb::parallel_for(tbb::blocked_range<int64_t>(0, pieces, 1), [&](const tbb::blocked_range<int64_t>& range) {
      for (int64_t i = range.begin(); i < range.end(); ++i) f(i * grain, std::min(n, (i + 1) * grain));
    });
  } catch (const Error&) {
    throw;
  } catch (const std::runtime_error&) {  // of oneTBB alone: no loop here throws one
    fail("threads: the system refuses a thread more, ", threads,
         " are wanted; take fewer with --threads, or raise the limit of the machine (ulimit -u)");
  }
}

#endif

}  // namespace orrery
