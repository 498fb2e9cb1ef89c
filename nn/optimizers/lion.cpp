// Lion, found by a search over programs. Chen et al. 2023, arXiv:2302.06675, program 1.
//   d = sign(beta1 m + (1 - beta1) g),   p <- (1 - lr decay) p - lr d,   m <- beta2 m + (1 - beta2) g
// g is already clipped; sign 0 = 0. Every element moves by lr, regardless of its gradient's size.
// So lr is 3 to 10 times smaller and the decay 3 to 10 times larger than with AdamW (section 5).
// Vectors and scalars do not decay. One pass: reads p, g, m, writes p, m.
#include "nn/optimizers/base/elementwise.h"

namespace orrery::nn {
namespace {

struct LionFormula {
  struct Settings {
    double beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
    GroupLearningRates lr_scales;
    template <class V>
    void visit(V& v) {
      v("beta1", beta1, "weight of the momentum in the direction of the step", moving_average());
      v("beta2", beta2, "decay of the mean of the gradients", moving_average());
      v("weight_decay|decay", weight_decay, "decoupled weight decay of matrices", between(0, 1000));
      lr_scales.visit(v);
    }
  };
  static constexpr Info info{
      .name = "lion",
      .formula = "p (1 - learning_rate weight_decay) - learning_rate sign(beta1 m + (1 - beta1) g)",
      .source = "Chen et al. 2023, arXiv:2302.06675",
      .parameters = "m 0",
      .saves = "m: one number per parameter"};
  static constexpr const char* moment_names[] = {"momentum"};
  static constexpr int moments = 1;
  double beta1, beta2, decay;
  explicit LionFormula(const Settings& s) : beta1(s.beta1), beta2(s.beta2), decay(s.weight_decay) {}

  template <class A>
  struct Step {
    A beta1, beta2, decay_factor, lr;
    HOST_DEVICE A operator()(A p, A g, A* m) const {
      const A d = beta1 * m[0] + (1 - beta1) * g;
      m[0] = beta2 * m[0] + (1 - beta2) * g;
      return decay_factor * p - (d > 0 ? lr : d < 0 ? -lr : A(0));
    }
  };
  template <class A>
  HOST_DEVICE Step<A> step(const Optimizer::StepArguments&, double lr, bool apply_decay) const {
    return {A(beta1), A(beta2), A(1 - (apply_decay ? lr * decay : 0)), A(lr)};
  }
};

using Lion = ElementwiseOptimizer<LionFormula>;
REGISTER_OPTIMIZER(Lion);

}  // namespace
}  // namespace orrery::nn
