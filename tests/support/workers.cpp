#include "tests/support/workers.h"

#include <condition_variable>
#include <mutex>
#include <thread>

namespace cuda_on_cpu {
namespace {

class Workers {
 public:
  ~Workers() {
    start({}, 0, true);
    for (std::thread& thread : threads_) thread.join();
  }
  void run(int helpers, Body job) {
    while (static_cast<int>(threads_.size()) < helpers)
      threads_.emplace_back(
          [this, index = static_cast<int>(threads_.size()), last_round = round_] { serve(index, last_round); });
    start(job, helpers, false);
    job.call(job.object);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return busy_ == 0; });
  }

 private:
  void start(Body job, int helpers, bool end) {
    {
      const std::lock_guard lock(mutex_);
      job_ = job, wanted_ = busy_ = helpers, end_ = end, ++round_;
    }
    wake_.notify_all();
  }
  void serve(int index, int last_round) {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return round_ != last_round; });
      last_round = round_;
      if (end_) return;
      if (index >= wanted_) continue;
      const Body job = job_;
      lock.unlock();
      job.call(job.object);
      lock.lock();
      if (--busy_ == 0) done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::vector<std::thread> threads_;
  Body job_{};
  int wanted_ = 0, busy_ = 0, round_ = 0;
  bool end_ = false;
};

}  // namespace

void run_on_workers(int helpers, Body job) {
  static Workers workers;
  workers.run(helpers, job);
}

}  // namespace cuda_on_cpu
