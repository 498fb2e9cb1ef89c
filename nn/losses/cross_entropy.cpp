// Cross-entropy with the softmax inside.
//   per row:  l = lse - (1 - s) z_t - s mean_v z_v,   lse = m + ln sum_v exp(z_v - m),  m = max z
// which is the cross-entropy with q_v = (1 - s) [v = t] + s / V: label smoothing s, Szegedy et al. 2016,
// arXiv:1512.00567
//   loss = (sum of l over the rows with a target) / N,   N = the number of such rows
//   dz_v = (exp(z_v - lse) - q_v) dloss / N;   0 in rows without a target, which is any below 0
// Kept: the logits, the targets, N and the log-sum-exp of each row (1 number a row).  Backward overwrites the logits
// with their gradient if nobody else owns them, so a vocabulary of 50,000 is held once.
#include <cmath>

#include "engine/autograd/autograd.h"
#include "engine/base/dispatch.h"
#include "engine/base/scalar.h"
#include "engine/loops/loops.h"
#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/losses/base/loss.h"

namespace orrery::nn {
namespace {

template <class T>
struct RowLoss {
  using A = Arithmetic<T>;
  In<T> logits;
  const int32_t* target;
  A *log_sum, *loss;
  A smoothing;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const In<T> in = logits.at(r * row.n);
    const auto z = row.hold(in);
    const A top = row.max([&](auto v) { return z[v]; });
    const A total = row.sum([&](auto v) { return scalar::exp(z[v] - top); });
    const A lse = top + scalar::log(total);
    const A even = smoothing > 0 ? smoothing / static_cast<A>(row.n) * row.sum([&](auto v) { return z[v]; }) : A(0);
    row.once([&] {
      log_sum[r] = lse;
      const int t = target[r];  // one that cannot be leaves a NaN: a device cannot tell an error
      loss[r] = t < 0 ? A(0) : t < row.n ? lse - (1 - smoothing) * in[t] - even : A(NAN);
    });
  }
};
template <class T>
struct RowGradient {
  using A = Arithmetic<T>;
  In<T> logits;
  Out<T> gradient;
  const int32_t* target;
  const A* log_sum;
  const A* dloss;
  const double* share;  // 1 / N
  A smoothing;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const In<T> z = logits.at(r * row.n);
    const Out<T> dz = gradient.at(r * row.n);
    const A lse = log_sum[r], g = target[r] < 0 ? A(0) : dloss[0] * static_cast<A>(share[0]);
    const A even = smoothing / static_cast<A>(row.n), hit = 1 - smoothing;
    const int t = target[r];
    row.each([&](int v) { dz[v] = (scalar::exp(z[v] - lse) - even - (v == t ? hit : A(0))) * g; });
  }
};
template <class A>
struct LossOfRow {  // and whether it counts
  const A* loss;
  const int32_t* target;
  HOST_DEVICE Values<double, 2> operator()(int64_t r, int64_t) const {
    return {{static_cast<double>(loss[r]), target[r] < 0 ? 0.0 : 1.0}};
  }
};

struct CrossEntropy {
  static constexpr const char* name = "cross_entropy";
  double smoothing;

  Tensor forward(Saved& saved, const Tensor& logits, const Tensor& targets) const {
    const Dtype arithmetic = logits.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32;
    const Tensor log_sum = Tensor::empty(targets.shape(), arithmetic, logits.device()),
                 loss = Tensor::empty_like(log_sum);
    const Tensor total = Tensor::empty(Shape{}, Dtype::f64, logits.device()), count = Tensor::empty_like(total);
    dispatch(logits.dtype(), name, [&]<class T>() {
      using A = Arithmetic<T>;
      rows(logits.device(), targets.numel(), static_cast<int>(logits.size(-1)),
           RowLoss<T>{{logits.data<T>()},
                      targets.data<int32_t>(),
                      log_sum.mutable_data<A>(),
                      loss.mutable_data<A>(),
                      static_cast<A>(smoothing)});
      reduce(logits.device(), 1, targets.numel(), 1, LossOfRow<A>{loss.data<A>(), targets.data<int32_t>()},
             Outputs<double, 2>{{total.mutable_data<double>(), count.mutable_data<double>()}});
    });
    const Tensor share = reciprocal(count);
    saved.save(logits, targets, log_sum, share);
    return (total * share).to(log_sum.dtype());
  }
  Gradients<2> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor &logits = saved[0], &targets = saved[1], &log_sum = saved[2], dz = saved.take(0);
    dispatch(logits.dtype(), name, [&]<class T>() {
      using A = Arithmetic<T>;
      rows(logits.device(), targets.numel(), static_cast<int>(logits.size(-1)),
           RowGradient<T>{{logits.data<T>()},
                          {dz.mutable_data<T>()},
                          targets.data<int32_t>(),
                          log_sum.data<A>(),
                          dy.data<A>(),
                          saved[3].data<double>(),
                          static_cast<A>(smoothing)});
    });
    return {dz, Tensor()};
  }
};

// On the CPU.  On a device an impossible target, and a batch without any, make a loss that is not a number.
void check_targets(const Tensor& targets, int64_t classes) {
  const int32_t* const t = targets.data<int32_t>();
  int64_t counted = 0;
  for (int64_t i = 0; i < targets.numel(); ++i) {
    check(t[i] < classes, "cross_entropy: target ", t[i], " at position ", i, " is outside 0 to ", classes - 1,
          " (a negative one leaves its row out)");
    counted += t[i] >= 0;
  }
  check(counted > 0, "cross_entropy: no row has a target, so there is no mean; leave such a batch out");
}

Tensor reference(const Tensor& logits, const Tensor& targets, double smoothing) {
  const Tensor top = max(logits, -1, true).detach();
  const Tensor log_sum = log(sum(exp(logits - top), {-1}, true)) + top;
  const Tensor known = Tensor::from(targets.shape(), [&] {
    std::vector<double> v = targets.to_vector();
    for (double& x : v) x = x >= 0;
    return v;
  }());
  const Tensor mask = known.to(logits.dtype());
  const Tensor chosen = gather_last(
      log_sum - logits, cast(maximum(targets.to(logits.dtype()), Tensor::zeros({1}, logits.dtype())), Dtype::i32));
  const Tensor even = mean(log_sum - logits, {-1});
  return sum((chosen * (1 - smoothing) + even * smoothing) * mask) / sum(mask);
}

constexpr LossInfo info{.name = "cross_entropy",
                        .formula = "ln sum exp(z) - sum_v q_v z_v, q = (1 - s) [v = target] + s / V",
                        .source = "Bridle 1990; s: Szegedy et al. 2016, arXiv:1512.00567",
                        .parameters = "none",
                        .keeps = "z (overwritten by its gradient), targets, log-sum-exp of each row"};
REGISTER_LOSS(info);

GradientCase gradient_case(const CaseTensors& random) {
  const std::vector<int32_t> at = {3, 0, -1, 6, 3};
  return {{{"logits", random({5, 7})}, {"targets", Tensor::from(Shape{5}, at)}},
          [](const auto& in) { return cross_entropy(in[0], in[1]); },
          [](const auto& in) { return reference(in[0], in[1], 0); }};
}
REGISTER_GRADIENT_CASE("loss", "cross_entropy", gradient_case);
GradientCase smoothed_case(const CaseTensors& random) {
  const std::vector<int32_t> at = {-100, 2, 0, -1};
  return {{{"logits", random({4, 5})}, {"targets", Tensor::from(Shape{4}, at)}},
          [](const auto& in) { return cross_entropy(in[0], in[1], 0.1); },
          [](const auto& in) { return reference(in[0], in[1], 0.1); }};
}
REGISTER_GRADIENT_CASE("loss", "cross_entropy", smoothed_case);

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, double smoothing) {
  check(smoothing >= 0 && smoothing < 1, "cross_entropy: the smoothing must lie in [0, 1), not ", smoothing);
  check(logits.shape().rank() >= 1 && targets.dtype() == Dtype::i32 && targets.shape() == logits.shape().without(-1),
        "cross_entropy: targets ", targets.shape(), " ", name(targets.dtype()), " for logits ", logits.shape(),
        "; they must be i32 without the last axis");
  if (targets.device() == Device::cpu) check_targets(targets, logits.size(-1));
  return record(CrossEntropy{smoothing}, logits, targets);
}

}  // namespace orrery::nn
