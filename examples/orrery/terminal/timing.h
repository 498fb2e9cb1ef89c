// Timing of a function.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace orrery::program {

struct Timing {
  double best, median;  // seconds
};

// Calls f twice as a warm-up, then times it repeatedly for `seconds`, at least three times.
template <class F>
Timing measure(const F& f, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto now = [] { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); };
  f(), f();
  std::vector<double> times;
  for (const double end = now() + seconds; now() < end || times.size() < 3;) {
    const double start = now();
    f();
    times.push_back(now() - start);
  }
  std::sort(times.begin(), times.end());
  const size_t half = times.size() / 2;
  return {times.front(), times.size() % 2 ? times[half] : (times[half - 1] + times[half]) / 2};
}

}  // namespace orrery::program
