// Deterministic random tensors for tests.
#pragma once

#include <cmath>
#include <vector>

#include "engine/tensor/tensor.h"

namespace orrery::testing {

// Returns irregular values of magnitude about 1 that depend on the seed.
inline Tensor random_tensor(const Shape& shape, int seed = 1, Dtype dtype = Dtype::f64) {
  std::vector<double> values(static_cast<size_t>(shape.numel()));
  uint64_t state = 88172645463325252ull + static_cast<uint64_t>(seed) * 7046029254386353131ull;
  for (double& v : values) {
    v = 0;
    for (int i = 0; i < 4; ++i) {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      v += static_cast<double>(state >> 11) / 9007199254740992.0 - 0.5;
    }
    v *= 1.7320508;
  }
  return Tensor::from(shape, values, dtype);
}

// Returns integers from -4 to 4: their sums are exact in any order.
inline Tensor whole_numbers(const Shape& shape, int seed = 1, Dtype dtype = Dtype::f64) {
  std::vector<double> values = random_tensor(shape, seed).to_vector();
  for (double& v : values) v = std::nearbyint(std::fmod(v * 1000, 5.0));
  return Tensor::from(shape, values, dtype);
}

inline double largest_difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to_vector(), y = b.to_vector();
  if (a.shape() != b.shape()) return INFINITY;
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double d = x[i] == y[i] ? 0 : std::fabs(x[i] - y[i]);
    worst = std::isnan(d) ? INFINITY : std::max(worst, d);
  }
  return worst;
}

}  // namespace orrery::testing
