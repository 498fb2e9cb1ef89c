// Random numbers of a fuzzer: equal for equal seeds on any machine.
#pragma once

#include <cstdint>

namespace fuzz {

class Random {  // splitmix64
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  uint64_t below(uint64_t n) { return n == 0 ? 0 : next() % n; }
  bool one_in(uint64_t n) { return below(n) == 0; }
  template <class List>
  auto pick(const List& list) {
    return list[below(list.size())];
  }

 private:
  uint64_t state_;
};

}  // namespace fuzz
