// AdamW.  Loshchilov and Hutter 2019, arXiv:1711.05101; moments from Kingma and Ba 2015, arXiv:1412.6980.
//   m <- beta1 m + (1 - beta1) g,   v <- beta2 v + (1 - beta2) g^2                 g already clipped
//   p <- (1 - rate decay) p - rate (m / c1) / (sqrt(v / c2) + epsilon),   c1 = 1 - beta1^t,  c2 = 1 - beta2^t
// Vectors and scalars do not decay.  One pass: reads p, g, m, v, writes p, m, v.
#include <cmath>

#include "engine/dispatch.h"
#include "engine/scalar.h"
#include "nn/optimizer.h"
#include "nn/optimizers/chunks.h"

namespace orrery::nn {
namespace {

template <class T, class Control>
struct Update {
  using A = Arithmetic<T>;
  T *p, *m, *v;
  const T* g;
  const Control* control;
  double beta1, beta2, epsilon, decay, lowest, highest;
  int64_t offset = 0;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const A b1 = A(beta1), b2 = A(beta2), eps = A(epsilon), clip = A(control->clip_factor),
            keep = A(1 - control->rate * decay);
    const A rate = A(control->rate / control->first_correction), root = A(1 / std::sqrt(control->second_correction));
    const A low = A(lowest), high = A(highest);
    const int64_t first = offset + r * chunk_width;
    const Out<T> to_p{p + first}, to_m{m + first}, to_v{v + first};
    const In<T> from_p{p + first}, from_m{m + first}, from_v{v + first}, from_g{g + first};
    row.each([&](int i) {
      const A x = from_g[i] * clip, mean = b1 * from_m[i] + (1 - b1) * x, square = b2 * from_v[i] + (1 - b2) * x * x;
      const A moved = keep * from_p[i] - rate * mean / (scalar::sqrt(square) * root + eps);
      to_m[i] = mean, to_v[i] = square;
      to_p[i] = moved < low ? low : moved > high ? high : moved;
    });
  }
};

class AdamW final : public Optimizer {
 public:
  struct Settings {
    double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, decay = 0.01;
    template <class V>
    void visit(V& v) {
      v("beta1", beta1, "decay of the mean of the gradients", share());
      v("beta2", beta2, "decay of the mean of their squares", share());
      v("epsilon", epsilon, "added to the root", above(0));
      v("decay", decay, "weight decay of matrices", at_least(0));
    }
  };
  static inline const Info info{.name = "adamw",
                                .formula = "p (1 - rate decay) - rate m / (sqrt(v) + epsilon), moments corrected",
                                .source = "Loshchilov and Hutter 2019, arXiv:1711.05101",
                                .parameters = "m 0, v 0",
                                .keeps = "m and v: two numbers a parameter"};

  AdamW(const Spec& spec, FlatParameters& parameters)
      : Optimizer(parameters), first_(parameters.make_moments()), second_(parameters.make_moments()) {
    read_settings(spec, settings_);
  }
  std::vector<std::pair<std::string, Tensor>> moments() const override {
    return {{"first_moment", first_}, {"second_moment", second_}};
  }

 private:
  std::pair<double, double> corrections(int64_t t) const override {
    return {1 - std::pow(settings_.beta1, static_cast<double>(t)),
            1 - std::pow(settings_.beta2, static_cast<double>(t))};
  }
  void update(const Control* control) override {
    const Tensor &p = parameters_.values(), &g = parameters_.gradients();
    dispatch(p.dtype(), "adamw", [&]<class T>() {
      for (const FlatParameters::Run& run : parameters_.runs()) {
        const int64_t b = run.begin;
        update_chunks(
            p.device(), run.end - b,
            Update<T, Control>{p.mutable_data<T>() + b, first_.mutable_data<T>() + b, second_.mutable_data<T>() + b,
                               g.data<T>() + b, control, settings_.beta1, settings_.beta2, settings_.epsilon,
                               run.decay ? settings_.decay : 0, run.lowest, run.highest});
      }
    });
  }

  Settings settings_;
  Tensor first_, second_;
};
REGISTER_OPTIMIZER(AdamW);

}  // namespace
}  // namespace orrery::nn
