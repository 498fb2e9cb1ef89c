// Initial values of parameters.  Numbers come from Philox counters: a parameter's values depend on its key alone.
#pragma once

#include <array>
#include <span>

#include "engine/math/random.h"
#include "engine/tensor/tensor.h"

namespace orrery::nn {

struct Initialization {
  enum class Kind { constant, normal, uniform, listed } kind = Kind::constant;
  double a = 0;                     // the constant, the standard std, or the half width
  std::array<double, 4> list = {};  // of `listed`
};

Initialization constant(double value);
Initialization listed(std::span<const double> values);     // at most four: one for each element
Initialization normal(double standard_deviation);          // N(0, std^2)
Initialization scaled_normal(double std, int64_t layers);  // N(0, std^2 / (2 layers)): GPT-2's outputs
Initialization uniform(double half_width);                 // U(-half_width, half_width)
// Glorot and Bengio 2010: variance 2 / (inputs + outputs)
Initialization xavier_uniform(int64_t inputs, int64_t outputs);
Initialization xavier_normal(int64_t inputs, int64_t outputs);
// He et al. 2015: variance gain^2 / inputs
Initialization kaiming_uniform(int64_t inputs, double gain = 1.4142135623730951);
Initialization kaiming_normal(int64_t inputs, double gain = 1.4142135623730951);

// Fills x, wherever it lives; element i gets the number with counter i.
void fill(const Tensor& x, Initialization how, RandomKey key);

}  // namespace orrery::nn
