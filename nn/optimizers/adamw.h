// AdamW. Loshchilov and Hutter 2019, arXiv:1711.05101; moments from Kingma and Ba 2015, arXiv:1412.6980.
//   m <- beta1 m + (1 - beta1) g,   v <- beta2 v + (1 - beta2) g^2                 g already clipped
//   p <- (1 - lr decay) p - lr (m / c1) / (sqrt(v / c2) + epsilon),   c1 = 1 - beta1^t,  c2 = 1 - beta2^t
// This file is only the formula: adamw.cpp wraps it, muon.cpp applies it to non-matrix parameters.
#pragma once

#include <cmath>

#include "engine/math/scalar.h"
#include "nn/optimizers/base/elementwise.h"

namespace orrery::nn {

struct AdamWFormula {
  static constexpr int moments = 2;
  double beta1, beta2, epsilon, decay;

  template <class A>
  struct Step {
    A beta1, beta2, epsilon, decay_factor, lr, root;
    HOST_DEVICE A operator()(A p, A g, A* m) const {
      m[0] = beta1 * m[0] + (1 - beta1) * g;
      m[1] = beta2 * m[1] + (1 - beta2) * g * g;
      return decay_factor * p - lr * m[0] / (scalar::sqrt(m[1]) * root + epsilon);
    }
  };
  template <class A>
  HOST_DEVICE Step<A> step(const Optimizer::StepArguments& arguments, double lr, bool apply_decay) const {
    return {A(beta1),
            A(beta2),
            A(epsilon),
            A(1 - (apply_decay ? lr * decay : 0)),
            A(lr / arguments.first_correction),
            A(1 / std::sqrt(arguments.second_correction))};
  }
  std::pair<double, double> corrections(int64_t step) const {
    return {1 - std::pow(beta1, static_cast<double>(step)), 1 - std::pow(beta2, static_cast<double>(step))};
  }
};

}  // namespace orrery::nn
