// Entropy-margin loss of ReLUFormer: penalizes attention rows that spread too far. Shen et al. 2023, arXiv:2302.06461.
//   per row L = max(H - C, 0),   C = 0.7 ln n,   n the visible keys of the row;   dL/dH = 1 where H > C, else 0
// H = -sum_j p_j ln p_j with p = w / S is a true entropy, unchanged by factors of w (one source
// uses the raw weights). The computation of H has its own derivative: dH/dw_j = -(ln p_j + H) / S
// for w_j > 0, else 0. The loss is the mean over batch, heads and rows with n >= 1. A row with
// S = 0 has H = 0 and loss 0. Saved for backward: H and n.
#include "engine/math/scalar.h"
#include "nn/base/gradient_case.h"
#include "nn/losses/base/loss.h"
#include "nn/losses/counted_mean.h"

namespace orrery::nn {
namespace {

struct AboveMargin {
  static constexpr const char* name = "entropy_margin_loss";
  double fraction;
  template <class A>
  HOST_DEVICE bool counts(A, A visible) const {
    return visible >= 1;
  }
  template <class A>
  HOST_DEVICE A value(A entropy, A visible) const {
    const A excess = entropy - A(fraction) * scalar::log(visible);
    return excess < 0 ? A(0) : excess;
  }
  template <class A>
  HOST_DEVICE A derivative(A entropy, A visible) const {
    return entropy > A(fraction) * scalar::log(visible) ? A(1) : A(0);
  }
};

constexpr LossInfo info{.name = "entropy_margin_loss",
                        .formula = "max(H - 0.7 ln n, 0)",
                        .source = "Shen et al. 2023, arXiv:2302.06461",
                        .parameters = "none",
                        .saves = "H, n",
                        .weight_of = "relu_former's entropy above 0.7 ln n, with n visible keys"};
REGISTER_LOSS(info);

GradientCase gradient_case(const CaseTensors& random) {
  const Tensor visible = Tensor::from({4}, {0, 1, 2, 3}, Dtype::f64),
               margin = Tensor::from({4}, {0, 0, 0.7 * std::log(2), 0.7 * std::log(3)}, Dtype::f64),
               counted = Tensor::from({4}, {0, 1, 1, 1}, Dtype::f64);
  return {{{"entropies", random({2, 3, 4}) + 0.3}},
          [=](const auto& in) { return entropy_margin_loss(in[0], visible.to(in[0].device())); },
          [=](const auto& in) {
            return sum(maximum(in[0] - margin, Tensor::zeros({1}, Dtype::f64)) * counted) / (2.0 * 3.0 * 3.0);
          }};
}
REGISTER_GRADIENT_CASE("loss", "entropy_margin_loss", gradient_case);

}  // namespace

Tensor entropy_margin_loss(const Tensor& entropies, const Tensor& visible, double fraction) {
  check(fraction >= 0, "entropy_margin_loss: the fraction of ln n must be at least 0, not ", fraction);
  check_same_kind("entropy_margin_loss", entropies, visible);
  return record(CountedMean<AboveMargin>{{fraction}}, entropies, broadcast_to(visible.detach(), entropies.shape()));
}

}  // namespace orrery::nn
