// Sparsemax attention.  Martins and Astudillo 2016, arXiv:1602.02068.
//   w = the point of the simplex nearest to s:   w_j = max(s_j - tau, 0) with tau such that sum_j w_j = 1
// Michelot 1986, J. Optim. Theory Appl. 50: tau = (sum_A s_j - 1) / |A|, A = {j : s_j > tau},
// iterated from A = all visible keys. A only shrinks, so this is exact after finitely many rounds.
// On A, dtau = mean_A ds, so with g = dw:
//   ds_j = g_j - mean_A g   for j in A,   0 elsewhere;   a row of ds adds up to 0
// Masked keys have s = -infinity and w = 0; a query without a visible key has w = 0 everywhere.
// Saved for backward: w, (B, H, Tq, Tk), because row-wise weighting needs whole score rows.
#include "engine/ops/ops.h"
#include "nn/attentions/base/row_rule.h"

namespace orrery::nn {
namespace {

struct Sparsemax {
  static inline const Info info{.name = "sparsemax",
                                .formula = "o_i = sum_j max(s_ij - tau_i, 0) v_j, weights of a row add up to 1",
                                .source = "Martins and Astudillo 2016, arXiv:1602.02068",
                                .parameters = "as softmax",
                                .saves = "q, k, v, scores and weights (B, H, Tq, Tk)"};

  template <class Row, class T, class A = Arithmetic<T>>
  HOST_DEVICE void forward(Row row, In<T> scores, Out<T> w) const {
    const auto s = row.preload(scores);
    const A lowest = std::numeric_limits<A>::lowest();  // below every visible score
    A tau = lowest, count = row.sum([=](A s_j) { return s_j > lowest ? A(1) : A(0); }, s);
    for (A before = count + 1; count > 0 && count < before;) {
      const A bound = tau;
      tau = (row.sum([=](A s_j) { return s_j > bound ? s_j : A(0); }, s) - 1) / count;
      const A next = tau;
      before = count, count = row.sum([=](A s_j) { return s_j > next ? A(1) : A(0); }, s);
    }
    const A threshold = tau;
    row.map(w, [&](A s_j) { return s_j > threshold ? s_j - threshold : A(0); }, s);
  }
  template <class Row, class T, class A = Arithmetic<T>>
  HOST_DEVICE void backward(Row row, In<T> weights, In<T> dw, Out<T> ds) const {
    const auto w = row.preload(weights), g = row.preload(dw);
    const A count = row.sum([](A w_j) { return w_j > 0 ? A(1) : A(0); }, w);
    const A sum = row.sum([](A w_j, A g_j) { return w_j > 0 ? g_j : A(0); }, w, g);
    const A mean = sum / (count > 0 ? count : A(1));
    row.map(ds, [&](A w_j, A g_j) { return w_j > 0 ? g_j - mean : A(0); }, w, g);
  }
};

// Takes the support from Sparsemax; on it the formula is a mean and a difference.
Tensor reference(const Tensor& s) {
  const Tensor on = heaviside(weights_by(Sparsemax{}, s.detach())), zero = Tensor::zeros({1}, s.dtype());
  const Tensor inside = where(on, s, zero), one = Tensor::full({1}, 1, s.dtype());
  const Tensor tau = (sum(inside, {-1}, true) - 1.0) / maximum(sum(on, {-1}, true), one);
  return where(on, inside - tau, zero);
}

REGISTER_ROW_RULE(Sparsemax, reference);

}  // namespace
}  // namespace orrery::nn
