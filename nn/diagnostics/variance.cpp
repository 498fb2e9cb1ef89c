// Output variance of a sublayer over its residual's. Shen et al. 2023, arXiv:2302.06461: softmax
// fails as a feed-forward, because over S slots its initial variance is about e / S, ReLU's S / 2.
//   ratio = Var(output) / Var(residual),   Var x = mean (x - mean x)^2 over all elements, in f64
#include <algorithm>

#include "engine/loops/tensor_loops.h"
#include "engine/types/check.h"
#include "nn/diagnostics/diagnostics.h"

namespace orrery::nn {
namespace {

struct Power {  // (x - mean), to the first or second power
  double mean;
  bool squared;
  template <class A>
  HOST_DEVICE double operator()(A x) const {
    const double centred = static_cast<double>(x) - mean;
    return squared ? centred * centred : centred;
  }
};

}  // namespace

double variance(const Tensor& x) {
  const Tensor total = Tensor::empty_like(x, Shape{}, Dtype::f64);
  const auto average = [&](double mean, bool squared) {
    sum_elements("variance", Power{mean, squared}, out_sums<double>(total), row_of(x));
    return total.item() / static_cast<double>(std::max<int64_t>(1, x.numel()));
  };
  return average(average(0, false), true);
}

double variance_ratio(const Tensor& output, const Tensor& residual) {
  const double residual_variance = variance(residual);
  check(residual_variance > 0, "variance_ratio: the residual ", residual.shape(),
        " is constant, so its variance is 0; use another input");
  return variance(output) / residual_variance;
}

}  // namespace orrery::nn
