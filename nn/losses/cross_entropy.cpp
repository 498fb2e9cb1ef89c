// Cross-entropy with built-in softmax.
//   per row:  l = lse - (1 - s) z_t - s mean_v z_v,   lse = m + ln sum_v exp(z_v - m),  m = max z
// which is the cross-entropy with q_v = (1 - s) [v = t] + s / V: label smoothing s,
// Szegedy et al. 2016, arXiv:1512.00567.
//   loss = (sum of l over the rows with a target) / N,   N = the number of such rows, at least 1
//   dz_v = (exp(z_v - lse) - q_v) dloss / N;   0 in rows without a target (a negative index)
// Saved: logits, targets, N, each row's lse. Backward writes over unshared logits: 50,000 classes need one buffer.
#include <cmath>
#include <utility>

#include "engine/autograd/autograd.h"
#include "engine/loops/tensor_loops.h"
#include "engine/math/approx_float.h"
#include "engine/math/scalar.h"
#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/losses/base/loss.h"

namespace orrery::nn {
namespace {

struct RowLoss {
  double smoothing;
  template <class Row, class T, class A>
  HOST_DEVICE void operator()(Row row, In<T> logits, int32_t target, A& log_sum, A& loss) const {
    const Values<A, 2> top_and_total = row.exponentials(logits);
    const A lse = top_and_total[0] + scalar::log(top_and_total[1]), s = A(smoothing);
    const A uniform_term = s > 0 ? s / static_cast<A>(row.n) * row.sum([](A z) { return z; }, logits) : A(0);
    row.once([&] {
      log_sum = lse;  // an invalid target gives NaN, because a device cannot throw
      loss = target < 0 ? A(0) : target < row.n ? lse - (1 - s) * logits[target] - uniform_term : A(NAN);
    });
  }
};
struct RowGradient {
  double smoothing;
  template <class Row, class T, class A>
  HOST_DEVICE void operator()(Row row, In<T> z, int32_t target, A lse, In<A> dloss, In<double> inverse_count,
                              Out<T> dz) const {  // inverse_count: 1 / N
    using Number = typename Row::template FormulaFloat<T>;
    const A g = target < 0 ? A(0) : dloss[0] * static_cast<A>(inverse_count[0]),
            uniform_term = A(smoothing) / static_cast<A>(row.n);
    const bool has_target = target >= 0 && target < row.n;  // reads z first, because dz may overwrite it
    const A target_gradient =
        has_target ? (scalar::exp(z[target] - lse) - uniform_term - (1 - A(smoothing))) * g : A(0);
    row.map(dz, [&](A zv) { return (to_float(scalar::exp(Number(zv - lse))) - uniform_term) * g; }, z);
    if (has_target) row.once([&] { dz[target] = target_gradient; });
  }
};
struct LossOfRow {  // loss, and 1 if the row counts
  template <class A>
  HOST_DEVICE Values<double, 2> operator()(A loss, int32_t target) const {
    return {{static_cast<double>(loss), target < 0 ? 0.0 : 1.0}};
  }
};
struct InverseCount {  // 1 / N
  HOST_DEVICE double operator()(double count) const { return 1 / (count > 1 ? count : 1); }
};

struct CrossEntropy {
  static constexpr const char* name = "cross_entropy";
  double smoothing;

  std::pair<Tensor, Tensor> rows(const Tensor& logits, const Tensor& targets) const {  // log-sum-exp and loss
    const Tensor log_sum = empty_computed(logits, targets.shape()), loss = Tensor::empty_like(log_sum);
    each_row(name, RowLoss{smoothing}, row_of(logits), per_row<int32_t>(targets), out_per_row(log_sum),
             out_per_row(loss));
    return {log_sum, loss};
  }
  Tensor forward(Saved& saved, const Tensor& logits, const Tensor& targets) const {
    const auto [log_sum, loss] = rows(logits, targets);
    const Tensor total = Tensor::empty_like(logits, Shape{}, Dtype::f64), count = Tensor::empty_like(total);
    sum_elements(name, LossOfRow{}, out_sums<double>(total, count), row_of(loss), row_of<int32_t>(targets));
    const Tensor inverse_count = Tensor::empty_like(count);
    each_element(name, InverseCount{}, out_elements<double>(inverse_count), row_of<double>(count));
    saved.save(logits, targets, log_sum, inverse_count);
    return (total * inverse_count).to(log_sum.dtype());
  }
  Gradients<2> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor &logits = saved[0], &targets = saved[1], &log_sum = saved[2], &inverse_count = saved[3],
                 dz = saved.take(0);
    each_row(name, RowGradient{smoothing}, row_of(logits), per_row<int32_t>(targets), per_row(log_sum),
             broadcast<Computed>(dy), broadcast<double>(inverse_count), out_row(dz));
    return {dz, Tensor()};
  }
};

// Throws for targets >= classes. CPU only: on a device they make the loss NaN.
void check_targets(const Tensor& targets, int64_t classes) {
  const int32_t* const t = targets.data<int32_t>();
  for (int64_t i = 0; i < targets.numel(); ++i)
    check(t[i] < classes, "cross_entropy: target ", t[i], " at position ", i, " is outside 0 to ", classes - 1,
          " (negative targets are ignored)");
}

Tensor reference(const Tensor& logits, const Tensor& targets, double smoothing) {
  const Tensor top = max(logits, -1, true).detach();
  const Tensor log_sum = log(sum(exp(logits - top), {-1}, true)) + top;
  const Tensor mask = heaviside(shift(targets.to(logits.dtype()), 0.5));
  const Tensor chosen = gather_last(
      log_sum - logits, cast(maximum(targets.to(logits.dtype()), Tensor::zeros({1}, logits.dtype())), Dtype::i32));
  const Tensor uniform_term = mean(log_sum - logits, {-1});
  return sum((chosen * (1 - smoothing) + uniform_term * smoothing) * mask) / sum(mask);
}

constexpr LossInfo info{.name = "cross_entropy",
                        .formula = "ln sum exp(z) - sum_v q_v z_v, q = (1 - s) [v = target] + s / V",
                        .source = "Bridle 1990; s: Szegedy et al. 2016, arXiv:1512.00567",
                        .parameters = "none",
                        .saves = "z (overwritten by its gradient), targets, log-sum-exp of each row"};
REGISTER_LOSS(info);

GradientCase case_of(const Tensor& logits, const std::vector<int32_t>& ids, double smoothing) {
  return {{{"logits", logits}, {"targets", Tensor::from(logits.shape().without(-1), ids)}},
          [=](const auto& in) { return cross_entropy(in[0], in[1], smoothing); },
          [=](const auto& in) { return reference(in[0], in[1], smoothing); }};
}
GradientCase gradient_case(const CaseTensors& random) { return case_of(random({5, 7}), {3, 0, -1, 6, 3}, 0); }
REGISTER_GRADIENT_CASE("loss", "cross_entropy", gradient_case);
GradientCase smoothed_case(const CaseTensors& random) { return case_of(random({4, 5}), {-100, 2, 0, -1}, 0.1); }
REGISTER_GRADIENT_CASE("loss", "cross_entropy", smoothed_case);

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, double smoothing) {
  check(smoothing >= 0 && smoothing < 1, "cross_entropy: smoothing must lie in [0, 1), not ", smoothing);
  check(logits.shape().rank() >= 1 && targets.dtype() == Dtype::i32 && targets.shape() == logits.shape().without(-1),
        "cross_entropy: targets ", targets.shape(), " ", name(targets.dtype()), " do not fit logits ", logits.shape(),
        "; they must be i32 with the shape of the logits without the last axis");
  if (targets.device() == Device::cpu) check_targets(targets, logits.size(-1));
  return record(CrossEntropy{smoothing}, logits, targets);
}
Tensor cross_entropy_of_rows(const Tensor& logits, const Tensor& targets) {
  check_targets(targets, logits.size(-1));
  return CrossEntropy{0}.rows(logits, targets).second;
}

}  // namespace orrery::nn
