// A running mean of gradients, without a second moment:  u <- 0.5 (u + g),  p <- p - lr (u + decay p)
#include "nn/optimizers/base/elementwise.h"

namespace orrery::nn {
namespace {

struct DroppedFormula {
  struct Settings {
    double weight_decay = 0;
    GroupLearningRates lr_scales;
    template <class V>
    void visit(V& v) {
      v("weight_decay", weight_decay, "decay of matrices", between(0, 1000));
      lr_scales.visit(v);
    }
  };
  static constexpr Info info{.name = "dropped_optimizer",
                             .formula = "u = (u + g) / 2; p - learning_rate (u + weight_decay p)",
                             .source = "a test",
                             .parameters = "u 0",
                             .saves = "u: one number per parameter"};
  static constexpr const char* moment_names[] = {"mean"};
  static constexpr int moments = 1;
  double decay;
  explicit DroppedFormula(const Settings& s) : decay(s.weight_decay) {}

  template <class A>
  struct Step {
    A decay, lr;
    HOST_DEVICE A operator()(A p, A g, A* m) const {
      m[0] = (m[0] + g) / 2;
      return p - lr * (m[0] + decay * p);
    }
  };
  template <class A>
  HOST_DEVICE Step<A> step(const Optimizer::StepArguments&, double lr, bool apply_decay) const {
    return {A(apply_decay ? decay : 0), A(lr)};
  }
};

using DroppedOptimizer = ElementwiseOptimizer<DroppedFormula>;
REGISTER_OPTIMIZER(DroppedOptimizer);

}  // namespace
}  // namespace orrery::nn
