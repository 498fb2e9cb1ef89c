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
class Ahead {
 public:
  // `make` may run on another thread, one call at a time.
  explicit Ahead(std::function<Value(const Key&)> make) : make_(std::move(make)) {}

  Value at(const Key& key, const Key& next) {
    std::optional<Value> value;
    if (made_.valid() && made_for_ == key) value = made_.get();
    if (made_.valid()) made_.wait();  // ignore errors of another key
    if (!value) value = make_(key);
    try {
      made_ = std::async(std::launch::async, make_, next);
      made_for_ = next;
    } catch (const std::system_error&) {  // no thread is available: make the value when it is needed
    }
    return std::move(*value);
  }

 private:
  std::function<Value(const Key&)> make_;
  std::future<Value> made_;  // its destructor waits for the thread
  Key made_for_ = {};
};

}  // namespace orrery
