// AdamW (formula in adamw.h). Vectors and scalars do not decay. One pass: reads p, g, m, v, writes p, m, v.
#include "nn/optimizers/adamw.h"

namespace orrery::nn {
namespace {

struct AdamWOfSettings : AdamWFormula {
  struct Settings {
    double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01;
    GroupLearningRates lr_scales;
    template <class V>
    void visit(V& v) {
      v("beta1", beta1, "decay of the mean of the gradients", moving_average());
      v("beta2", beta2, "decay of the mean of the squared gradients", moving_average());
      v("epsilon", epsilon, "added to the square root", above(0, 100));
      v("weight_decay|decay", weight_decay, "decoupled weight decay of matrices", between(0, 1000));
      lr_scales.visit(v);
    }
  };
  static constexpr Info info{.name = "adamw",
                             .formula =
                                 "p (1 - learning_rate weight_decay) - learning_rate m / (sqrt(v) + epsilon), moments "
                                 "corrected",
                             .source = "Loshchilov and Hutter 2019, arXiv:1711.05101",
                             .parameters = "m 0, v 0",
                             .saves = "m and v: two numbers per parameter",
                             .alias = "adam"};
  static constexpr const char* moment_names[] = {"first_moment", "second_moment"};

  explicit AdamWOfSettings(const Settings& s) : AdamWFormula{s.beta1, s.beta2, s.epsilon, s.weight_decay} {}
};

using AdamW = ElementwiseOptimizer<AdamWOfSettings>;
REGISTER_OPTIMIZER(AdamW);

}  // namespace
}  // namespace orrery::nn
