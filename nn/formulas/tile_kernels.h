// The role (activation.h) of a formula, with or without parameters, on tiles of other operations.
#pragma once

#include "nn/formulas/elementwise.h"

namespace orrery::nn {

template <class T>
template <class F>
class TileRole<T>::Of : public TileRole<T> {
 public:
  explicit Of(const F& f) : f_(f) {}
  void values(const T* x, T* y, int64_t n, const T* p) const override {
    orrery::detail::map_range(0, n, detail::ValueOf<Function>{bound<A>(f_, p)}, y, x);
  }
  void backward(const T* x, const T* g, T* y, T* dx, int64_t n, const T* p) const override {
    const Function f = bound<A>(f_, p);
    if (y)
      orrery::detail::map_range(0, n, detail::ValueAndDerivativeTimes<Function>{f}, Outputs<T, 2>{{y, dx}}, x, g);
    else
      orrery::detail::map_range(0, n, detail::DerivativeTimes<Function>{f}, dx, x, g);
  }
  void add_parameter_gradients(const T* x, const T* g, int64_t n, const T* p, double* dp) const override {
    if constexpr (learned_count<F> > 0 && std::is_same_v<T, A>) {
      const Function f = bound<A>(f_, p);
      const auto sum_of = [&]<int k>(std::integral_constant<int, k>) {  // k as a constant, or it would not vectorize
        return CpuRow{static_cast<int>(n)}.sum([&](int i) {
          A terms[learned_count<F>];
          f.parameter_derivatives(x[i], terms);
          return terms[k] * g[i];
        });
      };
      [&]<int... k>(std::integer_sequence<int, k...>) {
        ((dp[k] += sum_of(std::integral_constant<int, k>())), ...);
      }(std::make_integer_sequence<int, learned_count<F>>());
    }
  }

 private:
  using A = Arithmetic<T>;
  using Function = BoundTo<A, F>;
  F f_;
};

}  // namespace orrery::nn
