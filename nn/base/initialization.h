// Initial values of parameters, from Philox: a parameter's values depend only on its rng key.
#pragma once

#include <array>
#include <span>

#include "engine/math/random.h"
#include "engine/tensor/tensor.h"

namespace orrery::nn {

struct Initialization {
  enum class Kind { constant, normal, uniform, listed } kind = Kind::constant;
  double a = 0;                     // constant, standard deviation, half width or length of the list
  std::array<double, 4> list = {};  // values of `listed`
};

Initialization constant(double value);
Initialization listed(std::span<const double> values);     // at most four values, which repeat
Initialization normal(double standard_deviation);          // N(0, std^2)
Initialization scaled_normal(double std, int64_t layers);  // N(0, std^2 / (2 layers)): GPT-2's output projections
Initialization uniform(double half_width);                 // U(-half_width, half_width)
// Glorot and Bengio 2010: variance 2 / (inputs + outputs)
Initialization xavier_uniform(int64_t inputs, int64_t outputs);
Initialization xavier_normal(int64_t inputs, int64_t outputs);
// He et al. 2015: variance gain^2 / inputs
Initialization kaiming_uniform(int64_t inputs, double gain = 1.4142135623730951);
Initialization kaiming_normal(int64_t inputs, double gain = 1.4142135623730951);

// Fills x, on either device; element i gets the random number with counter i.
void fill(const Tensor& x, Initialization init, RandomKey rng);

}  // namespace orrery::nn
