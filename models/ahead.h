// The next value is made on a thread of its own while the last one is used.  What a value is depends on its key alone,
// so nobody can tell but by the clock.
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
  // `make` may run on another thread, one at a time.
  explicit Ahead(std::function<Value(const Key&)> make) : make_(std::move(make)) {}

  Value at(const Key& key, const Key& next) {
    std::optional<Value> value;
    if (made_.valid() && made_for_ == key) value = made_.get();
    if (made_.valid()) made_.wait();  // what went wrong with another key concerns nobody
    if (!value) value = make_(key);
    try {
      made_ = std::async(std::launch::async, make_, next);
      made_for_ = next;
    } catch (const std::system_error&) {  // no thread is to be had: it is made when it is asked for
    }
    return std::move(*value);
  }

 private:
  std::function<Value(const Key&)> make_;
  std::future<Value> made_;  // its destructor waits for the thread
  Key made_for_ = {};
};

}  // namespace orrery
