// Losses that are a mean over the elements that count.
//   loss = sum over i that count of F(x_i, c_i) / N,   N = number of elements that count, at least 1
//   dx_i = F'(x_i, c_i) dloss / N;   0 where i does not count
// F has counts(x, c), value(x, c), derivative(x, c); second_derivative(x, c) if c has a gradient.
// Saved for backward: x, c and N. The sum is in f64; its order depends only on the size.
#pragma once

#include "engine/autograd/autograd.h"
#include "engine/loops/tensor_loops.h"
#include "engine/ops/ops.h"

namespace orrery::nn {

template <class F>
struct CountedTerms {
  F f;
  template <class A>
  HOST_DEVICE Values<double, 2> operator()(A x, A c) const {
    const bool counts = f.counts(x, c);
    return {{counts ? static_cast<double>(f.value(x, c)) : 0.0, counts ? 1.0 : 0.0}};
  }
};
template <class F, bool Second>
struct CountedDerivative {
  F f;
  template <class A>
  HOST_DEVICE A operator()(A x, A c, In<A> dloss, In<double> count) const {
    const A weight = dloss[0] / static_cast<A>(count[0]);
    if (!f.counts(x, c)) return A(0);
    if constexpr (Second)
      return f.second_derivative(x, c) * weight;
    else
      return f.derivative(x, c) * weight;
  }
};

template <class F>
struct CountedMean {
  static constexpr const char* name = F::name;
  static constexpr bool has_second_derivative = requires(const F f, double x) { f.second_derivative(x, x); };
  F f;

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& c) const {
    const Tensor total = Tensor::empty_like(x, Shape{}, Dtype::f64), count = Tensor::empty_like(total);
    sum_elements(name, CountedTerms<F>{f}, out_sums<double>(total, count), row_of(x), row_of(c));
    const Tensor at_least_one = maximum(count, Tensor::full(Shape{}, 1, Dtype::f64, x.device()));
    saved.save(x, c, at_least_one);
    return (total / at_least_one).to(arithmetic_dtype(x.dtype()));
  }
  Gradients<2> backward(const Saved& saved, const Tensor& dy) const {
    Gradients<2> d;
    if (saved.needs(0)) d[0] = gradient<false>(saved, dy);
    if constexpr (has_second_derivative)
      if (saved.needs(1)) d[1] = gradient<true>(saved, dy);
    return d;
  }
  template <bool Second>
  Tensor gradient(const Saved& saved, const Tensor& dy) const {
    const Tensor &x = saved[0], &c = saved[1], &count = saved[2], dx = Tensor::empty_like(x);
    each_element(name, CountedDerivative<F, Second>{f}, out_elements(dx), row_of(x), row_of(c), broadcast<Computed>(dy),
                 broadcast<double>(count));
    return dx;
  }
};

}  // namespace orrery::nn
