// Normalization loss of ReLUFormer: pulls the sums of attention rows towards one.
// Shen et al. 2023, arXiv:2302.06461.
//   per row L = |ln S|,   S = sum_j s_j;   dL/dS = sign(ln S) / S, so dL/dgamma = -sign(ln S) / gamma for s ~ 1 / gamma
// Choices that the sources leave open: the absolute value stays, because without it a sum near one
// is not a minimum. The mean leaves out rows with S = 0, whose gradient is infinite, and rows with
// S < 0 (signed weights). The derivative at S = 1 is 0. The loss is the mean over all
// remaining rows, batch and heads: multiply its weight by the number of heads for the paper's sum
// over heads. Saved for backward: S.
#include "engine/math/scalar.h"
#include "nn/base/gradient_case.h"
#include "nn/losses/base/loss.h"
#include "nn/losses/counted_mean.h"

namespace orrery::nn {
namespace {

struct DistanceFromOne {
  static constexpr const char* name = "normalization_loss";
  template <class A>
  HOST_DEVICE bool counts(A sum, A) const {
    return !(sum <= 0);  // NaN counts, so that the loss is NaN
  }
  template <class A>
  HOST_DEVICE A value(A sum, A) const {
    return scalar::abs(scalar::log(sum));
  }
  template <class A>
  HOST_DEVICE A derivative(A sum, A) const {
    return (sum > 1 ? A(1) : sum < 1 ? A(-1) : A(0)) / sum;
  }
};

constexpr LossInfo info{.name = "normalization_loss",
                        .formula = "|ln S|, S = sum_j w_j > 0",
                        .source = "Shen et al. 2023, arXiv:2302.06461",
                        .parameters = "none",
                        .saves = "S",
                        .weight_of = "relu_former's |ln S|, where S is the sum of a row's weights"};
REGISTER_LOSS(info);

// Rows with S away from 1; every fourth has S = -1 and is left out of the mean.
GradientCase gradient_case(const CaseTensors& random) {
  std::vector<double> sums = random({2, 3, 4}).to_vector(), counted(sums.size());
  for (size_t i = 0; i < sums.size(); ++i) {
    counted[i] = i % 4 != 1;
    sums[i] = i % 4 == 1 ? -1 : std::exp(sums[i] + (sums[i] > 0 ? 0.1 : -0.1));
  }
  const Tensor mask = Tensor::from({2, 3, 4}, counted, Dtype::f64);
  return {{{"sums", Tensor::from({2, 3, 4}, sums, Dtype::f64)}},
          [](const auto& in) { return normalization_loss(in[0]); },
          [mask](const auto& in) {
            const Tensor one = Tensor::full({1}, 1, Dtype::f64);
            return sum(abs(log(where(mask, in[0], one)))) / sum(mask);
          }};
}
REGISTER_GRADIENT_CASE("loss", "normalization_loss", gradient_case);

}  // namespace

Tensor normalization_loss(const Tensor& sums) { return record(CountedMean<DistanceFromOne>{{}}, sums, sums.detach()); }

}  // namespace orrery::nn
