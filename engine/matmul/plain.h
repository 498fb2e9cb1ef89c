// The number type of single elements for blocks.h and the tiles of attention; bf16 is widened.
#pragma once

#include "engine/matmul/bf16_widen.h"

namespace orrery::detail::matmul {
namespace {

template <class T, class E>
struct Plain {
  using Accumulator = T;
  using Element = E;
  static constexpr int elements = 1;
  [[gnu::always_inline]] static Vector<T> down(const E* x) { return load_widened(x); }
  template <int n>
  [[gnu::always_inline]] static void across(const E* x, int64_t, T* y) {
    if constexpr (sizeof(E) == sizeof(T))
      __builtin_memcpy(y, x, n * sizeof(T));
    else
      unrolled<n>([&](auto i) __attribute__((always_inline)) { y[i] = widened(x[i]); });
  }
  [[gnu::always_inline]] static T group(const E* x, int64_t, int64_t) { return widened(*x); }
  [[gnu::always_inline]] static Vector<T> broadcast(const T* x) { return splat(*x); }
  [[gnu::always_inline]] static Vector<T> add(Vector<T> sums, Vector<T> b, Vector<T> a) { return sums + b * a; }
};

}  // namespace
}  // namespace orrery::detail::matmul
