// Row entropies and their four bins. Jha and Reagen 2024, arXiv:2410.09637.
//   H = -sum_j p_j ln p_j,   p_j = max(w_j, 0) / sum_j max(w_j, 0),   0 ln 0 = 0
// Uniform causal attention has H_i = ln i in row i, in the mean over T rows ln(T!) / T: 3.878 for
// T = 128 (ln T is 4.852). Bins of this ceiling reproduce the paper's values; bins of ln T do not.
#include <cmath>

#include "engine/autograd/autograd.h"
#include "engine/loops/tensor_loops.h"
#include "engine/math/scalar.h"
#include "engine/types/check.h"
#include "nn/diagnostics/diagnostics.h"

namespace orrery::nn {
namespace {

struct Entropy {
  template <class Row, class T, class A>
  HOST_DEVICE void operator()(Row row, In<T> weights, A& entropy) const {
    const auto w = row.preload(weights);
    const A total = row.sum([](A w_j) { return w_j < 0 ? A(0) : w_j; }, w);
    const A inverse = total == 0 ? A(0) : 1 / total;
    const auto term = [=](A w_j) {
      const A p = w_j <= 0 ? A(0) : w_j * inverse;
      return p == 0 ? A(0) : -p * scalar::log(p);
    };
    const A h = row.sum(term, w);
    row.once([&] { entropy = h; });
  }
};

}  // namespace

Tensor row_entropy(const Tensor& weights) {
  check(weights.shape().rank() >= 1 && weights.size(-1) >= 1, "row_entropy: weights of shape ", weights.shape(),
        " must have at least one element per row");
  const Tensor entropy = empty_computed(weights, weights.shape().without(-1));
  each_row("row_entropy", Entropy{}, row_of(weights), out_per_row(entropy));
  return entropy;
}

double causal_entropy_ceiling(int64_t positions) {
  check(positions >= 1, "causal_entropy_ceiling: ", positions, " positions; there must be at least one");
  return std::lgamma(static_cast<double>(positions) + 1) / static_cast<double>(positions);
}

std::array<double, 4> entropy_histogram(const Tensor& entropies, double ceiling) {
  check(ceiling > 0, "entropy_histogram: the ceiling must be above 0, not ", ceiling, "; use at least 2 positions");
  std::array<double, 4> fractions{};
  for (const double h : entropies.to_vector()) {
    check(!std::isnan(h), "entropy_histogram: an entropy is not a number; the model has diverged");
    const double quarter = std::floor(4 * h / ceiling);
    fractions[static_cast<size_t>(quarter < 0 ? 0 : quarter > 3 ? 3 : quarter)] += 1;
  }
  for (double& s : fractions) s /= static_cast<double>(entropies.numel());
  return fractions;
}

}  // namespace orrery::nn
