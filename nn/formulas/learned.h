// Kernels of a formula with parameters: p is (n), or (n, C) with a column per channel of x.
#pragma once

#include "engine/loops/loops.h"
#include "nn/formulas/formula.h"

namespace orrery::nn::detail {

template <class F, class T, bool PerChannel, bool Backward>
struct LearnedMap {  // row by row: y = F(x; p), or y = dF/dx g
  F f;
  const T* p;
  In<T> x, g;
  Out<T> y;
  int n;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    using A = Arithmetic<T>;
    const auto in = x.at(r * n), dy = Backward ? g.at(r * n) : g;
    const auto out = y.at(r * n);
    const auto my = *this;
    const auto shared = bound<A>(f, p);
    row.each([=](int i) {
      const auto own = [&] {  // a choice at run time would prevent vectorization
        if constexpr (PerChannel)
          return bound<A>(my.f, my.p + i, my.n);
        else
          return shared;
      }();
      if constexpr (Backward)
        out[i] = own.derivative(in[i]) * dy[i];
      else
        out[i] = own.value(in[i]);
    });
  }
};
template <class F, class T, bool PerChannel>
struct LearnedTerms {  // element i's terms of the parameter gradients
  F f;
  const T* p;
  In<T> x, g;
  int64_t channels;
  HOST_DEVICE Values<Arithmetic<T>, F::parameters> operator()(int64_t i, int64_t row) const {
    const int64_t channel = PerChannel ? i - row * channels : 0;
    Values<Arithmetic<T>, F::parameters> terms;
    bound<Arithmetic<T>>(f, p + channel, PerChannel ? channels : 1).parameter_derivatives(x[i], terms.value);
    for (int k = 0; k < F::parameters; ++k) terms[k] *= g[i];
    return terms;
  }
};

}  // namespace orrery::nn::detail
