// A map over bf16 on a CPU runs in chunks of 32 elements: it widens the inputs to float, runs the formula over floats
// and rounds the results, by the processor's instruction if it has one. Arrays this small stay in registers: widening
// and rounding cost a few instructions per 32 elements. A plain loop shuffles elements of two widths around the formula
// and rounds by eight instructions a vector. Chunks of hundreds go through memory, which a core writes slower than it
// computes. Zen 4, x 1.5 + 0.25, 32,768 cached elements: 1.7 us (chunks of 512: 3.4, f32: 2.4).
//
// The last chunk is padded to full size, so that the bits of an element do not depend on its index.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "engine/types/dtype.h"
#include "engine/types/host_device.h"

#if defined(__AVX512BF16__) && !defined(__CUDACC__)
#include <immintrin.h>
#define ORRERY_ROUNDS_TO_BF16 1
#else
#define ORRERY_ROUNDS_TO_BF16 0
#endif

namespace orrery {

// Destinations of a map whose formula returns Values<T, N>.
template <class T, int N>
struct Outputs {
  T* pointer[N];
};

namespace detail {

inline constexpr int bf16_chunk = 32;  // elements

#if ORRERY_ROUNDS_TO_BF16
typedef uint32_t Words __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(32)));

[[gnu::always_inline]] inline void widen_chunk(float* to, const bf16* from) {
  constexpr __mmask16 all = 0xffff;  // the intrinsics without a mask make g++ 12 warn about their own variables
  for (int i = 0; i < bf16_chunk; i += 16) {
    __m256i halves;
    std::memcpy(&halves, from + i, sizeof halves);
    const Words words = reinterpret_cast<Words>(_mm512_maskz_cvtepu16_epi32(all, halves)) << 16;
    std::memcpy(to + i, &words, sizeof words);
  }
}
// Gives the bits of bf16's own conversion.
[[gnu::always_inline]] inline Halves rounded_to_bf16(__m512 x) {
  const Words all = reinterpret_cast<Words>(x), rounded = (all + 0x7fffu + (all >> 16 & 1u)) >> 16;
  return __builtin_convertvector(x == x ? rounded : all >> 16 | 0x40u, Halves);
}
// The instruction reads numbers below 2^-126 as 0. It is not used if it makes a nonzero number 0.
[[gnu::always_inline]] inline void round_chunk(bf16* to, const float* from) {
  const __m512 low = _mm512_load_ps(from), high = _mm512_load_ps(from + 16), zero = _mm512_setzero_ps();
  const __m512bh all = _mm512_cvtne2ps_pbh(high, low);
  const __mmask32 zeros = _mm512_testn_epi16_mask(reinterpret_cast<__m512i>(all), _mm512_set1_epi16(0x7fff));
  const auto true_zeros = [&] {
    const __mmask32 lower = _mm512_cmp_ps_mask(low, zero, _CMP_EQ_OQ);
    return lower | static_cast<__mmask32>(_mm512_cmp_ps_mask(high, zero, _CMP_EQ_OQ)) << 16;
  };
  if (zeros == 0 || zeros == true_zeros()) {
    std::memcpy(static_cast<void*>(to), &all, sizeof all);
  } else {
    const Halves halves[2] = {rounded_to_bf16(low), rounded_to_bf16(high)};
    std::memcpy(static_cast<void*>(to), halves, sizeof halves);
  }
}
#else
HOST_DEVICE inline void widen_chunk(float* to, const bf16* from) {
#pragma GCC ivdep
  for (int i = 0; i < bf16_chunk; ++i) to[i] = static_cast<float>(from[i]);
}
HOST_DEVICE inline void round_chunk(bf16* to, const float* from) {
#pragma GCC ivdep
  for (int i = 0; i < bf16_chunk; ++i) to[i] = static_cast<bf16>(from[i]);
}
#endif

// A chunk of an input, as the formula reads it.
template <class T>
struct InputChunk {
  const T* numbers;
  HOST_DEVICE explicit InputChunk(const T* from) : numbers(from) {}
};
template <>
struct InputChunk<bf16> {
  alignas(64) float numbers[bf16_chunk];
  HOST_DEVICE explicit InputChunk(const bf16* from) { widen_chunk(numbers, from); }
};

// A chunk of the formula's results; finish writes it to its destination.
template <class T>
struct OutputChunk {
  T* numbers;
  HOST_DEVICE explicit OutputChunk(T* to) : numbers(to) {}
  HOST_DEVICE void finish(T*) const {}
};
template <>
struct OutputChunk<bf16> {
  alignas(64) float numbers[bf16_chunk];
  HOST_DEVICE explicit OutputChunk(bf16*) {}  // the numbers stay uninitialized
  HOST_DEVICE void finish(bf16* to) const { round_chunk(to, numbers); }
};

template <class Out>
struct ResultsChunk;
template <class T>
struct ResultsChunk<T*> {
  using Element = T;
  OutputChunk<T> chunk;
  HOST_DEVICE explicit ResultsChunk(T* to) : chunk(to) {}
  template <class A>
  HOST_DEVICE void put(int i, A value) {
    chunk.numbers[i] = value;
  }
  HOST_DEVICE void finish(T* to) const { chunk.finish(to); }
};
template <class T, int N>
struct ResultsChunk<Outputs<T, N>> {
  using Element = T;
  OutputChunk<T> chunks[N];
  HOST_DEVICE explicit ResultsChunk(const Outputs<T, N>& to) : ResultsChunk(to, std::make_index_sequence<N>()) {}
  template <class A>
  HOST_DEVICE void put(int i, const Values<A, N>& value) {
    for (int k = 0; k < N; ++k) chunks[k].numbers[i] = value[k];
  }
  HOST_DEVICE void finish(const Outputs<T, N>& to) const {
    for (int k = 0; k < N; ++k) chunks[k].finish(to.pointer[k]);
  }

 private:
  template <size_t... K>
  HOST_DEVICE ResultsChunk(const Outputs<T, N>& to, std::index_sequence<K...>)
      : chunks{OutputChunk<T>(to.pointer[K])...} {}
};

template <class Out, class... T>
inline constexpr bool uses_chunks =
    (std::is_same_v<T, bf16> || ...) || std::is_same_v<typename ResultsChunk<Out>::Element, bf16>;

// Maps a full chunk. All is inlined: arrays stay in registers only if indices are constants.
template <class F, class Out, class... T>
[[gnu::flatten]] HOST_DEVICE void map_full_chunk(const F& f, const Out& out, const T* const... in) {
  ResultsChunk<Out> results(out);
  const auto each = [&](const auto&... x) {
#pragma GCC ivdep
    for (int i = 0; i < bf16_chunk; ++i) results.put(i, f(x.numbers[i]...));
  };
  each(InputChunk<T>(in)...);
  results.finish(out);
}

// The last n elements, padded with zeros, and a buffer for the results.
template <class T>
struct LastInput {
  alignas(64) T numbers[bf16_chunk] = {};
  HOST_DEVICE LastInput(const T* from, int64_t n) {
    for (int64_t i = 0; i < n; ++i) numbers[i] = from[i];
  }
};
template <class Out>
struct LastResults;
template <class T>
struct LastResults<T*> {
  alignas(64) T numbers[bf16_chunk];
  HOST_DEVICE LastResults() {}
  HOST_DEVICE T* buffer() { return numbers; }
  HOST_DEVICE void copy(T* to, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) to[i] = numbers[i];
  }
};
template <class T, int N>
struct LastResults<Outputs<T, N>> {
  LastResults<T*> results[N];
  HOST_DEVICE Outputs<T, N> buffer() {
    Outputs<T, N> to;
    for (int k = 0; k < N; ++k) to.pointer[k] = results[k].buffer();
    return to;
  }
  HOST_DEVICE void copy(const Outputs<T, N>& to, int64_t n) const {
    for (int k = 0; k < N; ++k) results[k].copy(to.pointer[k], n);
  }
};

template <class T>
HOST_DEVICE T* advanced(T* to, int64_t i) {
  return to + i;
}
template <class T, int N>
HOST_DEVICE Outputs<T, N> advanced(Outputs<T, N> to, int64_t i) {
  for (int k = 0; k < N; ++k) to.pointer[k] += i;
  return to;
}

// out[i] = f(in[i]...) for i in [0, n)
template <class F, class Out, class... T>
[[gnu::flatten]] HOST_DEVICE void map_chunks(int64_t n, const F f, const Out out, const T* const... in) {
  int64_t i = 0;
  for (; i + bf16_chunk <= n; i += bf16_chunk) map_full_chunk(f, advanced(out, i), (in + i)...);
  if (i == n) return;
  LastResults<Out> last;
  map_full_chunk(f, last.buffer(), LastInput<T>(in + i, n - i).numbers...);
  last.copy(advanced(out, i), n - i);
}

}  // namespace detail
}  // namespace orrery
