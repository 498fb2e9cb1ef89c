// Stochastic gradient descent with momentum. Sutskever et al. 2013, PMLR 28; in PyTorch's form.
//   d = g + decay p,   u <- momentum u + d,   p <- p - lr u         nesterov: p <- p - lr (d + momentum u)
// g is already clipped; vectors and scalars do not decay.
#include "nn/optimizers/base/elementwise.h"

namespace orrery::nn {
namespace {

struct SgdFormula {
  struct Settings {
    double momentum = 0.9, weight_decay = 0;
    bool nesterov = false;
    GroupLearningRates lr_scales;
    template <class V>
    void visit(V& v) {
      v("momentum", momentum, "fraction of the previous step that is kept", fraction());
      v("weight_decay|decay", weight_decay, "weight decay of matrices", between(0, 1000));
      v("nesterov", nesterov, "use Nesterov momentum");
      lr_scales.visit(v);
    }
  };
  static constexpr Info info{.name = "sgd",
                             .formula = "u = momentum u + g + weight_decay p; p - learning_rate u",
                             .source = "Sutskever et al. 2013, PMLR 28",
                             .parameters = "u 0",
                             .saves = "u: one number per parameter"};
  static constexpr const char* moment_names[] = {"momentum"};
  static constexpr int moments = 1;
  double momentum, decay;
  bool nesterov;
  explicit SgdFormula(const Settings& s) : momentum(s.momentum), decay(s.weight_decay), nesterov(s.nesterov) {}

  template <class A>
  struct Step {
    A momentum, decay, lr, nesterov;
    HOST_DEVICE A operator()(A p, A g, A* m) const {
      const A d = g + decay * p;
      m[0] = momentum * m[0] + d;
      return p - lr * (nesterov != 0 ? d + momentum * m[0] : m[0]);
    }
  };
  template <class A>
  HOST_DEVICE Step<A> step(const Optimizer::StepArguments&, double lr, bool apply_decay) const {
    return {A(momentum), A(apply_decay ? decay : 0), A(lr), A(nesterov)};
  }
};

using Sgd = ElementwiseOptimizer<SgdFormula>;
REGISTER_OPTIMIZER(Sgd);

}  // namespace
}  // namespace orrery::nn
