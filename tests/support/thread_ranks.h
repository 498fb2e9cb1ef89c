// Ranks that are threads of the test, for tests without MPI: each message is a copy in memory.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "engine/distributed/ranks.h"

namespace orrery::testing {

class Mailboxes {  // of all ranks
 public:
  using Key = std::tuple<int64_t, int64_t, Transport::Channel>;  // sender, receiver, channel
  void put(const Key& key, const void* data, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto* const first = static_cast<const char*>(data);
    messages_[key].emplace_back(first, first + bytes);
  }
  bool take(const Key& key, void* data, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    std::deque<std::vector<char>>& waiting = messages_[key];
    if (waiting.empty()) return false;
    check(static_cast<int64_t>(waiting[0].size()) == bytes, "a message of ", waiting[0].size(), " bytes, not ", bytes);
    std::copy(waiting[0].begin(), waiting[0].end(), static_cast<char*>(data));
    waiting.pop_front();
    return true;
  }

 private:
  std::mutex mutex_;
  std::map<Key, std::deque<std::vector<char>>> messages_;
};

class ThreadTransport final : public Transport {
 public:
  // turn: locked by the rank that runs, if only one may; a rank that waits lets others run.
  ThreadTransport(Mailboxes& mail, int64_t rank, int64_t count, std::mutex* turn = nullptr)
      : mail_(mail), rank_(rank), count_(count), turn_(turn) {}
  int64_t rank() const override { return rank_; }
  int64_t count() const override { return count_; }
  int64_t send(int64_t to, Channel channel, const void* data, int64_t bytes) override {
    mail_.put({rank_, to, channel}, data, bytes);
    return add({});
  }
  int64_t receive(int64_t from, Channel channel, void* data, int64_t bytes) override {
    return add({from, channel, data, bytes});
  }
  // Messages of a channel arrive in order: one is not done before those that were started earlier.
  bool is_done(int64_t number) override {
    for (int64_t i = 0; i <= number; ++i) {
      Receive& each = receives_[static_cast<size_t>(i)];
      if (each.data && mail_.take({each.from, rank_, each.channel}, each.data, each.bytes)) each.data = nullptr;
    }
    const bool done = !receives_[static_cast<size_t>(number)].data;
    if (!done && turn_) {
      turn_->unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      turn_->lock();
    }
    return done;
  }
  void cancel(int64_t number) override { receives_[static_cast<size_t>(number)].data = nullptr; }
  void finish() override {}
  void end_all(int) override {}

 private:
  struct Receive {
    int64_t from = 0;
    Channel channel = Channel::data;
    void* data = nullptr;  // null: done
    int64_t bytes = 0;
  };
  int64_t add(const Receive& receive) {
    receives_.push_back(receive);
    return static_cast<int64_t>(receives_.size()) - 1;
  }
  Mailboxes& mail_;
  int64_t rank_, count_;
  std::mutex* turn_;
  std::vector<Receive> receives_;
};

// Calls work(ranks) on `count` ranks at once, or in turns, for work on what a process has once, such as the emulated
// GPU; rethrows the error of the lowest rank that throws.
template <class Work>
void on_thread_ranks(int64_t count, const Work& work, double wait_limit = 60, bool in_turns = false) {
  Mailboxes mail;
  std::mutex turn;
  std::vector<std::exception_ptr> errors(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < count; ++r)
    threads.emplace_back([&, r] {
      try {
        std::unique_lock lock(turn, std::defer_lock);
        if (in_turns) lock.lock();
        Ranks ranks(std::make_unique<ThreadTransport>(mail, r, count, in_turns ? &turn : nullptr), wait_limit);
        ranks.greet();
        work(ranks);
      } catch (...) {
        errors[static_cast<size_t>(r)] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace orrery::testing
