// Concepts that the formula of an activation must satisfy, and formulas on plain numbers.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <type_traits>

#include "engine/math/approx_float.h"
#include "engine/math/dual.h"
#include "engine/types/host_device.h"
#include "engine/math/positive_part.h"
#include "engine/math/scalar.h"
#include "nn/formulas/activation.h"

namespace orrery::nn {

template <class F>
concept PlainFormula = std::is_trivially_copyable_v<F> && requires(const F f, float x, double z) {
  { F::info } -> std::convertible_to<const ActivationInfo&>;
  { f.value(x) } -> std::same_as<float>;
  { f.value(z) } -> std::same_as<double>;
  { f.derivative(x) } -> std::same_as<float>;
  { f.derivative(z) } -> std::same_as<double>;
};
template <class F>
concept HasDerivativeFromOutput = requires(const F f, float y) {
  { f.derivative_from_output(y) } -> std::same_as<float>;
};
template <class F>
concept Homogeneous = requires { typename F::homogeneous; };  // F(a x) = a F(x) for a > 0
template <class F>
concept LearnedFormula = std::is_trivially_copyable_v<F> &&
    requires(const F f, float x, double z, const float* p, const double* q) {
  { F::info } -> std::convertible_to<const ActivationInfo&>;
  { F::parameters } -> std::convertible_to<int>;
  { f.value(x, p) } -> std::same_as<float>;
  { f.value(z, q) } -> std::same_as<double>;
  { f.derivative(x, p) } -> std::same_as<float>;
  { f.derivative(z, q) } -> std::same_as<double>;
};

template <class F>
inline constexpr int learned_count = 0;
template <LearnedFormula F>
inline constexpr int learned_count<F> = F::parameters;

// A formula with the values of its parameters. Kernels use it as a formula without parameters.
template <LearnedFormula F, class A>
struct Bound {
  F f;
  A p[F::parameters];
  template <class T>
  HOST_DEVICE T value(T x) const {
    return f.value(to_float(x), p);
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    return f.derivative(to_float(x), p);
  }
  HOST_DEVICE void parameter_derivatives(A x, A* out) const { f.parameter_derivatives(x, p, out); }
};
// Returns f with the parameters p[0], p[stride], ... in A; a formula without parameters itself.
template <class A, class F, class T>
HOST_DEVICE auto bound(const F& f, const T* p, int64_t stride = 1) {
  if constexpr (learned_count<F> > 0) {
    Bound<F, A> with{f, {}};
    for (int k = 0; k < F::parameters; ++k) with.p[k] = static_cast<A>(p[k * stride]);
    return with;
  } else {
    return f;
  }
}
template <class A, class F>
using BoundTo = decltype(bound<A>(std::declval<const F&>(), static_cast<const A*>(nullptr)));

namespace detail {

template <class F>
F with_constants(const double* constants) {
  if constexpr (std::is_empty_v<F>) {
    return F{};
  } else {
    std::array<double, sizeof(F) / sizeof(double)> all;
    std::copy_n(constants, all.size(), all.begin());
    return std::bit_cast<F>(all);
  }
}

template <class F>
class CompiledFormula : public Formula {
 public:
  explicit CompiledFormula(const F& f) : f_(f) {}
  double value(double x, const double* p) const override { return bound<double>(f_, p).value(x); }
  double derivative(double x, const double* p) const override { return bound<double>(f_, p).derivative(x); }
  double derivative_by_dual(double x, [[maybe_unused]] const double* p, int parameter) const override {
    const Dual variable(x, parameter < 0);
    if constexpr (learned_count<F> > 0) {
      Dual all[F::parameters];
      for (int k = 0; k < F::parameters; ++k) {
        const Dual trained(p[k], k == parameter);
        all[k] = F::info.positive ? scalar::softplus(trained) : trained;
      }
      return f_.value(variable, static_cast<const Dual*>(all)).derivative;
    } else {
      return f_.value(variable).derivative;
    }
  }
  bool is_homogeneous() const override { return Homogeneous<F>; }
  bool has_derivative_from_output() const override { return HasDerivativeFromOutput<F>; }
  double derivative_from_output([[maybe_unused]] double y) const override {
    if constexpr (HasDerivativeFromOutput<F>) return f_.derivative_from_output(y);
    return 0;
  }
  void parameter_derivatives(double x, [[maybe_unused]] const double* p, [[maybe_unused]] double* out) const override {
    if constexpr (learned_count<F> > 0) f_.parameter_derivatives(x, p, out);
  }
  void initial_parameters([[maybe_unused]] double* p) const override {
    if constexpr (learned_count<F> > 0) f_.initial_parameters(p);
  }

 private:
  F f_;
};

}  // namespace detail
}  // namespace orrery::nn
