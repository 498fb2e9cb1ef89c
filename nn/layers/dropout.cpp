// Dropout. Srivastava et al. 2014, JMLR 15.
//   y_i = x_i m_i / (1 - p),   m_i = 1 if u_i >= p else 0,   u_i uniform in [0, 1) from counter i of the rng key
//   dx_i = dy_i m_i / (1 - p)
// Saved for backward: nothing.
#include "nn/layers/dropout.h"

#include "engine/autograd/autograd.h"
#include "engine/loops/tensor_loops.h"
#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/layers/layer.h"

namespace orrery::nn {
namespace {

struct Mask {
  DeviceRandomKey rng;
  float p;
  double factor;
  template <class Row, class T>
  HOST_DEVICE void operator()(Row row, In<T> x, int64_t r, Out<T> y) const {
    using A = Arithmetic<T>;
    const int64_t first = r * row.n;
    const RandomKey step_rng = rng.load();
    const A scale = A(factor);
    row.each([&](int i) {
      const bool keep = uniform(step_rng, static_cast<uint64_t>(first + i)) >= p;
      y[i] = keep ? x[i] * scale : A(0);
    });
  }
};
Tensor masked(const Tensor& x, double p, const DeviceRandomKey& rng) {
  const Tensor y = Tensor::empty_like(x);
  each_row("dropout", Mask{rng, static_cast<float>(p), 1 / (1 - p)}, row_of(x), row_index(), out_row(y));
  return y;
}

struct DropoutOperation {
  static constexpr const char* name = "dropout";
  double p;
  DeviceRandomKey rng;
  Tensor forward(Saved&, const Tensor& x) const { return masked(x, p, rng); }
  Gradients<1> backward(const Saved&, const Tensor& dy) const { return {masked(dy, p, rng)}; }
};

constexpr Info dropout_layer{.name = "dropout",
                             .formula = "x m / (1 - p), m = 0 with probability p, else 1",
                             .source = "Srivastava et al. 2014, JMLR 15",
                             .parameters = "none",
                             .saves = "nothing; m is generated again"};
REGISTER_LAYER(dropout_layer);

GradientCase gradient_case(const CaseTensors& random) {
  static constexpr RandomKey rng{7, 11};
  return {{{"x", random({6, 5})}},
          [](const auto& in) { return dropout(in[0], 0.4, rng); },
          [](const auto& in) { return in[0] * masked(Tensor::full(in[0].shape(), 1, Dtype::f64), 0.4, rng); }};
}
REGISTER_GRADIENT_CASE("layer", "dropout", gradient_case);

}  // namespace

Tensor dropout(const Tensor& x, double p, const DeviceRandomKey& rng) { return record(DropoutOperation{p, rng}, x); }

Dropout::Dropout(double p) : p_(p) { check(p >= 0 && p < 1, "dropout: p must lie in [0, 1), not ", p); }
Tensor Dropout::forward(const Tensor& x, ForwardPass& pass) {
  return pass.training && p_ > 0 ? dropout(x, p_, rng_key(pass)) : x;
}

}  // namespace orrery::nn
