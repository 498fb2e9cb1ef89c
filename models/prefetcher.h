// A prefetcher: a thread makes the next value while the last one is used. A value depends only on
// its key, so prefetching does not change results.
#pragma once

#include <functional>
#include <future>
#include <optional>
#include <system_error>
#include <utility>

namespace orrery {

template <class Key, class Value>
class Prefetcher {
 public:
  // `make` may run on another thread, one call at a time.
  explicit Prefetcher(std::function<Value(const Key&)> make) : make_(std::move(make)) {}

  // Returns the value of `key`, and begins to make that of `next`. Throws the errors of make(key).
  Value at(const Key& key, const Key& next) {
    std::optional<Value> value;
    if (pending_.valid() && pending_key_ == key) value = pending_.get();
    if (pending_.valid()) pending_.wait();  // ignore errors of another key
    if (!value) value = make_(key);
    try {
      pending_ = std::async(std::launch::async, make_, next);
      pending_key_ = next;
    } catch (const std::system_error&) {  // no thread is available: make the value when it is needed
    }
    return std::move(*value);
  }

 private:
  std::function<Value(const Key&)> make_;
  std::future<Value> pending_;  // its destructor waits for the thread
  Key pending_key_ = {};
};

}  // namespace orrery
