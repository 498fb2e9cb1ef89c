// Loads that widen bf16, the upper half of a float, and stores that round to bf16. Functions of
// bf16 itself are not used: files of other instruction sets would share them; see vectors.h.
#pragma once

#include "engine/simd/vectors.h"
#include "engine/types/dtype.h"

namespace orrery::detail::matmul {
namespace {

using namespace simd;

template <class T>
[[gnu::always_inline]] inline T widened(T x) {
  return x;
}
template <class T>
[[gnu::always_inline]] inline Vector<T> load_widened(const T* p) {
  return load(p);
}
[[gnu::always_inline]] inline float widened(bf16 x) { return __builtin_bit_cast(float, uint32_t{x.bits} << 16); }
[[gnu::always_inline]] inline Vector<float> load_widened(const bf16* p) {
  typedef uint16_t Halves __attribute__((vector_size(vector_bytes / 2)));
  Halves halves;
  __builtin_memcpy(&halves, p, sizeof halves);
  return reinterpret_cast<Vector<float>>(__builtin_convertvector(halves, Bits<float>) << 16);
}

template <class T>
[[gnu::always_inline]] inline void store_rounded(T* p, Vector<T> x) {
  store(p, x);
}
// Rounds to nearest, ties to even; NaN stays NaN.
[[gnu::always_inline]] inline void store_rounded(bf16* p, Vector<float> x) {
  typedef uint16_t Halves __attribute__((vector_size(vector_bytes / 2)));
  const Bits<float> all = reinterpret_cast<Bits<float>>(x), rounded = (all + 0x7fffu + (all >> 16 & 1u)) >> 16;
  const Halves halves = __builtin_convertvector(x == x ? rounded : all >> 16 | 0x40u, Halves);
  __builtin_memcpy(static_cast<void*>(p), &halves, sizeof halves);
}

}  // namespace
}  // namespace orrery::detail::matmul
