// The number type of bf16 pairs for blocks.h and the tiles of attention. vdpbf16ps adds two
// products to each of 16 sums. A group holds two elements, consecutive in the depth, so that panels
// are half as deep.
//
// The instruction treats subnormal elements and sums as zero. It adds the products of a pair one
// after the other. The rounding depends on the processor; for each addition it is below 2^-24 of
// the sum of the absolute products.
#pragma once

#include <immintrin.h>

#include "engine/simd/vectors.h"
#include "engine/types/dtype.h"

namespace orrery::detail::matmul {
namespace {

using namespace simd;

struct Pairs {
  using Accumulator = float;
  using Element = bf16;
  static constexpr int elements = 2;

  [[gnu::always_inline]] static Vector<float> down(const bf16* x) {  // pairs are adjacent in memory
    Vector<float> pairs;
    __builtin_memcpy(&pairs, x, sizeof pairs);
    return pairs;
  }
  template <int n>
  [[gnu::always_inline]] static void across(const bf16* x, int64_t stride, float* y) {
    constexpr int w = minimum(n, lanes<float>);
    unrolled<n / w>([&](auto v) __attribute__((always_inline)) {
      const Words<w> pairs = words<w>(x + v * w) | words<w>(x + v * w + stride) << 16;
      __builtin_memcpy(y + v * w, &pairs, sizeof pairs);
    });
  }
  [[gnu::always_inline]] static float group(const bf16* x, int64_t step, int64_t n) {
    return __builtin_bit_cast(float, uint32_t{x->bits} | (n > 1 ? uint32_t{x[step].bits} : 0) << 16);
  }
  [[gnu::always_inline]] static Vector<float> broadcast(const float* x) {
    uint32_t pair;  // an integer, since these bits are not a float
    __builtin_memcpy(&pair, x, sizeof pair);
    return reinterpret_cast<Vector<float>>(Bits<float>{} + pair);
  }
  [[gnu::always_inline]] static Vector<float> add(Vector<float> sums, Vector<float> b, Vector<float> a) {
    return _mm512_dpbf16_ps(sums, reinterpret_cast<__m512bh>(b), reinterpret_cast<__m512bh>(a));
  }

  [[gnu::always_inline]] static Vector<float> rounded(Vector<float> first, Vector<float> second) {
    return reinterpret_cast<Vector<float>>(
        _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(second), reinterpret_cast<__m512>(first)));
  }
  [[gnu::always_inline]] static Vector<float> joined(Vector<float> first, Vector<float> second) {
    return interleaved(reinterpret_cast<Halves>(rounded(first, second)), std::make_integer_sequence<int, 32>());
  }

 private:
  typedef uint16_t Halves __attribute__((vector_size(64)));
  template <int... i>
  [[gnu::always_inline]] static Vector<float> interleaved(Halves x, std::integer_sequence<int, i...>) {
    return reinterpret_cast<Vector<float>>(__builtin_shufflevector(x, x, (i / 2 + i % 2 * 16)...));
  }
  template <int n>
  using Words [[gnu::vector_size(n * 4)]] = uint32_t;
  template <int n>
  [[gnu::always_inline]] static Words<n> words(const bf16* x) {
    typedef uint16_t Halves __attribute__((vector_size(n * 2)));
    Halves halves;
    __builtin_memcpy(&halves, x, sizeof halves);
    return __builtin_convertvector(halves, Words<n>);
  }
};

}  // namespace
}  // namespace orrery::detail::matmul
