// Dropout: in training, each element is zero with probability p and divided by 1 - p otherwise.
#pragma once

#include "nn/base/module.h"

namespace orrery::nn {

// (...) -> (...). The mask of element i depends only on (rng, i), so backward generates it again.
Tensor dropout(const Tensor& x, double p, const DeviceRandomKey& rng);

class Dropout final : public Module {
 public:
  explicit Dropout(double p);  // in [0, 1)
  Tensor forward(const Tensor& x, ForwardPass& pass) override;  // (...) -> (...)

 private:
  double p_;
};

}  // namespace orrery::nn
