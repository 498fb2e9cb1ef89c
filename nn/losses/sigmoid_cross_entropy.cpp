// Cross-entropy of independent classes, sigmoid included; a row may have several or soft targets.
//   per row:  l = sum over classes v of  softplus(z_v) - y_v z_v,   softplus(z) = ln(1 + exp(z))
//   loss = sum of l / rows,   dz_v = (sigmoid(z_v) - y_v) dloss / rows,   dy_v = -z_v dloss / rows
// Sum over classes, mean over rows, as in training vision transformers (big_vision, Beyer et al.
// 2020, arXiv:2006.07159). Saved for backward: z and y.
#include "engine/math/scalar.h"
#include "nn/base/gradient_case.h"
#include "nn/losses/base/loss.h"
#include "nn/losses/counted_mean.h"

namespace orrery::nn {
namespace {

struct OneClass {
  static constexpr const char* name = "sigmoid_cross_entropy";
  double classes;  // number of classes: makes a mean over elements a mean over rows
  template <class A>
  HOST_DEVICE bool counts(A, A) const {
    return true;
  }
  template <class A>
  HOST_DEVICE A value(A z, A y) const {
    return A(classes) * (scalar::softplus(z) - y * z);
  }
  template <class A>
  HOST_DEVICE A derivative(A z, A y) const {
    return A(classes) * (scalar::sigmoid(z) - y);
  }
  template <class A>
  HOST_DEVICE A second_derivative(A z, A) const {
    return A(-classes) * z;
  }
};

Tensor reference(const Tensor& z, const Tensor& y) { return mean(sum(log(exp(z) + 1.0) - y * z, {-1})); }

constexpr LossInfo info{.name = "sigmoid_cross_entropy",
                        .formula = "sum_v ln(1 + exp(z_v)) - y_v z_v",
                        .source = "Beyer et al. 2020, arXiv:2006.07159",
                        .parameters = "none",
                        .saves = "z, y"};
REGISTER_LOSS(info);

GradientCase gradient_case(const CaseTensors& random) {
  return {{{"logits", random({5, 7})}, {"targets", random({5, 7})}},
          [](const auto& in) { return sigmoid_cross_entropy(in[0], in[1]); },
          [](const auto& in) { return reference(in[0], in[1]); }};
}
REGISTER_GRADIENT_CASE("loss", "sigmoid_cross_entropy", gradient_case);

}  // namespace

Tensor sigmoid_cross_entropy(const Tensor& logits, const Tensor& targets) {
  check(logits.shape().rank() >= 1 && logits.shape() == targets.shape(), "sigmoid_cross_entropy: targets ",
        targets.shape(), " do not fit logits ", logits.shape(),
        "; they must have the same shape, with one number per class");
  check_same_kind("sigmoid_cross_entropy", logits, targets);
  return record(CountedMean<OneClass>{{static_cast<double>(logits.size(-1))}}, logits, targets);
}

}  // namespace orrery::nn
