// Entropy regularizer: pulls each head's entropy to a learned fraction theta of the maximum.
// Jha and Reagen 2025, arXiv:2501.03489.
//   E_h = mean over batch and rows of the row entropies,   E_max = mean of ln n,   e_h = E_h - theta_h E_max
//   loss = mean over heads of  e_h^2 where |e_h| > m E_max, else 0
//   dE_h = 2 e_h dloss / heads where active,   dH = dE_h / rows for each row,   dtheta_h = -E_max dE_h
// Conventions: E_max is the maximum for n visible keys, ln(T!) / T under a causal mask (the paper
// uses ln T, which causal rows cannot reach). Rows of padding or without visible keys (n = 0) are
// in neither mean. E is a mean over rows as in the paper's algorithm (its code sums), so the weight
// does not depend on the batch. The paper's weights are 1e-5 (CodeParrot) and 5e-5 (Languini),
// m = 0.2. The temperature t, per head or head and position, divides the scores and so changes E:
//   y = z / t,   dz = dy / t,   dt = -sum over the scores with this t of dy z / t^2
// Saved for backward: e_h, 0 where inactive; for the temperature z and t.
#include <cmath>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/losses/base/loss.h"

namespace orrery::nn {
namespace {

struct Regularize {
  static constexpr const char* name = "entropy_regularizer";
  double tolerance;
  Tensor ceiling;     // E_max, one number
  Tensor row_weight;  // (B, 1, T), weight of each row in the mean: 1 / number of rows that count, or 0

  Tensor forward(Saved& saved, const Tensor& entropies, const Tensor& threshold) const {
    const Tensor counted = where(row_weight, entropies, Tensor::zeros_like(entropies, {1}));
    const Tensor excess = sum(counted * row_weight, {0, 2}) - threshold * ceiling;
    const Tensor active = heaviside(abs(excess) - ceiling * tolerance), active_excess = excess * active;
    saved.save(active_excess);
    return mean(active_excess * active_excess);
  }
  Gradients<2> backward(const Saved& saved, const Tensor& dy) const {
    const int64_t heads = saved[0].size(0);
    const Tensor head_gradient = saved[0] * dy * (2 / static_cast<double>(heads));
    Gradients<2> d;
    if (saved.needs(0)) d[0] = head_gradient.reshape(Shape{1, heads, 1}) * row_weight;
    if (saved.needs(1)) d[1] = -(head_gradient * ceiling);
    return d;
  }
};

// Returns the number of visible keys per row, (B, 1, T).
Tensor visible_of(const Tensor& entropies, const EntropyRegularizer& settings) {
  const int64_t rows = entropies.size(2);
  std::vector<double> n;
  for (int64_t i = 1; i <= rows; ++i) n.push_back(static_cast<double>(settings.causal ? i : rows));
  const Tensor visible =
      settings.visible ? settings.visible.detach() : Tensor::from(Shape{1, 1, rows}, n, entropies.dtype());
  return broadcast_to(visible.to(entropies.dtype()).to(entropies.device()), Shape{entropies.size(0), 1, rows});
}

struct Temper {
  static constexpr const char* name = "tempered";
  // (H) or (H, T) -> (H, 1, 1) or (H, T, 1)
  static Tensor expand(const Tensor& t) {
    return t.reshape(Shape{t.size(0), t.shape().rank() == 2 ? t.size(1) : 1, 1});
  }
  Tensor forward(Saved& saved, const Tensor& scores, const Tensor& temperature) const {
    saved.save(scores, temperature);
    return scores / expand(temperature);
  }
  Gradients<2> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor &z = saved[0], &t = saved[1];
    Gradients<2> d;
    if (saved.needs(0)) d[0] = dy / expand(t);
    if (saved.needs(1)) d[1] = -(t.shape().rank() == 2 ? sum(dy * z, {0, 3}) : sum(dy * z, {0, 2, 3})) / (t * t);
    return d;
  }
};

Tensor reference(const Tensor& entropies, const Tensor& threshold, double ceiling, double tolerance) {
  const Tensor excess = mean(mean(entropies, {2}), {0}) - threshold * ceiling;
  const Tensor active = heaviside(excess * excess - tolerance * ceiling * tolerance * ceiling);
  return mean(where(active, excess * excess, Tensor::zeros({1}, Dtype::f64)));
}

constexpr LossInfo info{.name = "entropy_regularizer",
                        .formula = "(E - theta E_max)^2 where |E - theta E_max| > m E_max",
                        .source = "Jha and Reagen 2025, arXiv:2501.03489",
                        .parameters = "theta (one per head), given by the caller",
                        .saves = "E - theta E_max of each head",
                        .weight_of = "the distance of softmax heads from their entropy_threshold"};
REGISTER_LOSS(info);

GradientCase causal_case(const CaseTensors& random) {
  const double ceiling = std::log(120.0) / 5;  // ln(5!) / 5
  return {{{"entropies", random({2, 4, 5})}, {"threshold", random({4})}},
          [](const auto& in) { return entropy_regularizer(in[0], in[1]); },
          [=](const auto& in) { return reference(in[0], in[1], ceiling, 0.2); }};
}
REGISTER_GRADIENT_CASE("loss", "entropy_regularizer", causal_case);
GradientCase full_case(const CaseTensors& random) {
  return {{{"entropies", random({2, 3, 4})}, {"threshold", random({3})}},
          [](const auto& in) { return entropy_regularizer(in[0], in[1], {.tolerance = 0.1, .causal = false}); },
          [](const auto& in) { return reference(in[0], in[1], std::log(4.0), 0.1); }};
}
REGISTER_GRADIENT_CASE("loss", "entropy_regularizer", full_case);

// Temperatures away from zero, (H) and (H, T).
GradientCase temperature_case(const CaseTensors& random, const Shape& shape) {
  const Tensor r = random(shape);
  return {{{"scores", random({2, 3, 4, 5})}, {"temperature", r * r + 0.5}},
          [](const auto& in) { return tempered(in[0], in[1]); },
          [](const auto& in) { return in[0] * reciprocal(Temper::expand(in[1])); }};
}
GradientCase per_head_case(const CaseTensors& random) { return temperature_case(random, {3}); }
REGISTER_GRADIENT_CASE("loss", "entropy_regularizer", per_head_case);
GradientCase per_position_case(const CaseTensors& random) { return temperature_case(random, {3, 4}); }
REGISTER_GRADIENT_CASE("loss", "entropy_regularizer", per_position_case);

}  // namespace

Tensor entropy_regularizer(const Tensor& entropies, const Tensor& threshold, const EntropyRegularizer& settings) {
  check(entropies.shape().rank() == 3 && threshold.shape() == Shape{entropies.size(1)},
        "entropy_regularizer: entropies ", entropies.shape(), " do not fit threshold ", threshold.shape(),
        "; they must be (batch, heads, time) and (heads)");
  check(settings.tolerance >= 0, "entropy_regularizer: tolerance must be at least 0, not ", settings.tolerance);
  check_same_kind("entropy_regularizer", entropies, threshold);
  const Tensor visible = visible_of(entropies, settings), zero = Tensor::zeros_like(visible, {1}),
               one = Tensor::full_like(visible, {1}, 1), counted = where(visible, one, zero);
  const Tensor row_weight = counted / maximum(sum(counted), one);
  const Tensor ceiling = sum(log(where(visible, visible, one)) * row_weight);
  return record(Regularize{settings.tolerance, ceiling, row_weight}, entropies, threshold);
}

Tensor tempered(const Tensor& scores, const Tensor& temperature) {
  const Shape& t = temperature.shape();
  check(scores.shape().rank() == 4 && (t == Shape{scores.size(1)} || t == Shape{scores.size(1), scores.size(2)}),
        "tempered: scores ", scores.shape(), " do not fit temperature ", t,
        "; they must be (batch, heads, time, keys) and (heads) or (heads, time)");
  check_same_kind("tempered", scores, temperature);
  return record(Temper{}, scores, temperature);
}

}  // namespace orrery::nn
