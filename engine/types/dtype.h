// Element types: storage type T, arithmetic type Arithmetic<T>. Formulas of elements compute in
// Arithmetic<T>; the loops that call them convert on loading and storing.
#pragma once

#include <bit>
#include <cstdint>

#include "engine/types/host_device.h"

namespace orrery {

enum class Dtype : uint8_t { f32, f64, bf16, i32 };

// bfloat16: the upper half of a float. Rounds to nearest, ties to even; NaN stays NaN.
struct alignas(2) bf16 {
  uint16_t bits = 0;

  bf16() = default;
  HOST_DEVICE explicit bf16(float x) {
#if defined(__CUDA_ARCH__)  // one instruction, from compute capability 8.0 on
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
#else
    const uint32_t all = std::bit_cast<uint32_t>(x);
    const uint32_t rounded = (all + 0x7fffu + (all >> 16 & 1u)) >> 16;
    bits = static_cast<uint16_t>(x == x ? rounded : (all >> 16) | 0x40u);
#endif
  }
  HOST_DEVICE explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

namespace detail {
template <class T>
struct ArithmeticOf {
  using type = T;
};
template <>
struct ArithmeticOf<bf16> {
  using type = float;
};
}  // namespace detail

template <class T>
using Arithmetic = typename detail::ArithmeticOf<T>::type;  // float for f32 and bf16, double for f64, int32_t for i32

template <class T>
inline constexpr Dtype dtype_of = Dtype::f32;
template <>
inline constexpr Dtype dtype_of<double> = Dtype::f64;
template <>
inline constexpr Dtype dtype_of<bf16> = Dtype::bf16;
template <>
inline constexpr Dtype dtype_of<int32_t> = Dtype::i32;

inline constexpr int bytes_of(Dtype dtype) { return dtype == Dtype::f64 ? 8 : dtype == Dtype::bf16 ? 2 : 4; }
inline constexpr const char* name(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return "f32";
    case Dtype::f64:
      return "f64";
    case Dtype::bf16:
      return "bf16";
    case Dtype::i32:
      break;
  }
  return "i32";
}
inline constexpr bool is_floating(Dtype dtype) { return dtype != Dtype::i32; }

// A pointer whose [] converts bf16 to float on reading.
template <class T>
struct In {
  const T* pointer = nullptr;
  HOST_DEVICE Arithmetic<T> operator[](int64_t i) const { return static_cast<Arithmetic<T>>(pointer[i]); }
  HOST_DEVICE In at(int64_t offset) const { return {pointer + offset}; }
  HOST_DEVICE explicit operator bool() const { return pointer != nullptr; }
};

// A pointer whose [] also converts float to bf16 on writing.
template <class T>
struct Out {
  T* pointer = nullptr;
  struct Reference {
    T& element;
    HOST_DEVICE void operator=(Arithmetic<T> x) const { element = static_cast<T>(x); }
    HOST_DEVICE void operator+=(Arithmetic<T> x) const {
      element = static_cast<T>(static_cast<Arithmetic<T>>(element) + x);
    }
    HOST_DEVICE operator Arithmetic<T>() const { return static_cast<Arithmetic<T>>(element); }
  };
  HOST_DEVICE Reference operator[](int64_t i) const { return {pointer[i]}; }
  HOST_DEVICE Out at(int64_t offset) const { return {pointer + offset}; }
  HOST_DEVICE explicit operator bool() const { return pointer != nullptr; }
};

// N values of one type: the results of a formula that has several.
template <class T, int N>
struct Values {
  T value[N];
  HOST_DEVICE T& operator[](int i) { return value[i]; }
  HOST_DEVICE const T& operator[](int i) const { return value[i]; }
};

}  // namespace orrery
