// Entmax attention with exponent 1.5, halfway between softmax and sparsemax.  Peters et al. 2019, arXiv:1905.05702.
//   w_j = max(s_j / 2 - tau, 0)^2   with tau such that sum_j w_j = 1
// f(tau) = sum_j max(s_j / 2 - tau, 0)^2 - 1 falls and is convex, and at tau = max s / 2 - 1 it is at least 0: from
// there Newton's steps  tau <- tau + f / (2 sum_j max(s_j / 2 - tau, 0))  rise to the root and never pass it.
// With u_j = sqrt(w_j) = s_j / 2 - tau on the support, and g = dw:
//   dw_j = 2 u_j (ds_j / 2 - dtau),   and sum_j dw_j = 0 gives dtau = sum_j u_j ds_j / (2 sum_j u_j), so
//   ds_j = u_j (g_j - sum_k u_k g_k / sum_k u_k);   a row of ds adds up to 0
// Masked keys have s = -infinity and w = 0; a query without a visible key has w = 0 everywhere.
// Saved for backward: w, (B, H, Tq, Tk), because row-wise weighting needs whole score rows.
#include "engine/math/scalar.h"
#include "engine/ops/ops.h"
#include "nn/attentions/base/row_rule.h"

namespace orrery::nn {
namespace {

struct Entmax15 {
  static inline const Info info{.name = "entmax15",
                                .formula = "o_i = sum_j max(s_ij / 2 - tau_i, 0)^2 v_j, weights of a row add up to 1",
                                .source = "Peters et al. 2019, arXiv:1905.05702",
                                .parameters = "as softmax",
                                .saves = "q, k, v, scores and weights (B, H, Tq, Tk)"};

  template <class Row, class T, class A = Arithmetic<T>>
  HOST_DEVICE void forward(Row row, In<T> scores, Out<T> w) const {
    const auto s = row.preload(scores);
    const A half = A(0.5), top = row.max([](A s_j) { return s_j; }, s), lowest = std::numeric_limits<A>::lowest();
    A tau = top > lowest ? half * top - 1 : A(0);
    // Convergence is quadratic from at most 1 below; the limit of 60 steps is only for NaN.
    for (int step = 0; step < 60 && top > lowest; ++step) {
      const A bound = tau;
      const A sum = row.sum([=](A s_j) { return half * s_j > bound ? half * s_j - bound : A(0); }, s);
      const A squares =
          row.sum([=](A s_j) { return half * s_j > bound ? (half * s_j - bound) * (half * s_j - bound) : A(0); }, s);
      tau = bound + (squares - 1) / (2 * sum);
      if (!(tau > bound)) break;
    }
    const A threshold = tau;
    const auto weight = [&](A s_j) {
      const A u = half * s_j > threshold ? half * s_j - threshold : A(0);
      return u * u;
    };
    row.map(w, weight, s);
  }
  template <class Row, class T, class A = Arithmetic<T>>
  HOST_DEVICE void backward(Row row, In<T> weights, In<T> dw, Out<T> ds) const {
    const auto w = row.preload(weights), g = row.preload(dw);
    const A total = row.sum([](A w_j) { return scalar::sqrt(w_j); }, w);
    // Selects instead of multiplying by 0, because g of a key with weight 0 may be NaN.
    const A sum = row.sum([](A w_j, A g_j) { return w_j != 0 ? scalar::sqrt(w_j) * g_j : A(0); }, w, g);
    const A mean = sum / (total > 0 ? total : A(1));
    row.map(ds, [&](A w_j, A g_j) { return w_j != 0 ? scalar::sqrt(w_j) * (g_j - mean) : A(0); }, w, g);
  }
};

// Takes the support A (k elements, mean m) from Entmax15; there sum_A (s / 2 - tau)^2 = 1 gives:
//   tau = m - sqrt((1 - sum_A (s / 2 - m)^2) / k)
Tensor reference(const Tensor& s) {
  const Tensor on = heaviside(weights_by(Entmax15{}, s.detach())), zero = Tensor::zeros({1}, s.dtype());
  const Tensor inside = where(on, s * 0.5, zero), one = Tensor::full({1}, 1, s.dtype());
  const Tensor k = maximum(sum(on, {-1}, true), one), m = sum(inside, {-1}, true) / k;
  const Tensor above = where(on, inside - m, zero);
  const Tensor tau = m - sqrt((-sum(above * above, {-1}, true) + 1.0) / k);
  const Tensor u = where(on, inside - tau, zero);
  return u * u;
}

REGISTER_ROW_RULE(Entmax15, reference, "entmax15(qk_norm=rms, scale=1)");

}  // namespace
}  // namespace orrery::nn
