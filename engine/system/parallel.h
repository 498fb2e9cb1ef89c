// Loops on all cores. parallel.cpp is the only file that includes oneTBB.
#pragma once

#include <cstdint>

namespace orrery {

// A reference to a callable, which must outlive it; never allocates.
class RangeFunction {
 public:
  template <class F>
  RangeFunction(const F& f)
      : object_(&f),
        call_([](const void* object, int64_t begin, int64_t end) { (*static_cast<const F*>(object))(begin, end); }) {}
  void operator()(int64_t begin, int64_t end) const { call_(object_, begin, end); }

 private:
  const void* object_;
  void (*call_)(const void*, int64_t, int64_t);
};

// Calls f(begin, end) for chunks of [0, n), each a multiple of `grain` long except the last. The
// chunks depend only on n and `grain`, never on the number of threads. A range of at most `grain`
// runs on the calling thread, and so does a loop inside a chunk of another loop.
void parallel_for(int64_t n, int64_t grain, RangeFunction f);

int thread_count();
void set_thread_count(int threads);  // at least 1; default: all cores of this process

}  // namespace orrery
