// Softmax over the k largest scores of each row: a row-wise weighting with its own setting.
//   w_j = exp(s_j - m) / sum over the k largest of exp(s_i - m),  m = max s;  0 for all other keys
//   ds_j = w_j (g_j - sum_i w_i g_i)        the choice of the k is constant; ties are all included
// Saved for backward: w.
#include "engine/math/scalar.h"
#include "engine/ops/ops.h"
#include "nn/attentions/base/row_rule.h"

namespace orrery::nn {
namespace {

struct TopK {
  static inline const Info info{.name = "top_k",
                                .formula = "softmax over the k largest scores",
                                .source = "Gupta et al. 2021, arXiv:2106.06899",
                                .parameters = "as softmax",
                                .saves = "q, k, v, weights (B, H, Tq, Tk)"};
  int64_t k = 8;
  void visit(auto& v) { v("k", k, "keys that a query reads", at_least(1)); }

  template <class Row, class T, class A = Arithmetic<T>>
  HOST_DEVICE void forward(Row row, In<T> scores, Out<T> w) const {
    const auto s = row.preload(scores);
    const A lowest = std::numeric_limits<A>::lowest(), top = row.max([](A s_j) { return s_j; }, s);
    A bound = top;  // the k-th largest: goes down from the largest until k keys are found
    for (;;) {
      const A at = bound;
      if (row.sum([=](A s_j) { return s_j >= at ? 1 : 0; }, s) >= k) break;
      bound = row.max([&](A s_j) { return s_j < at ? s_j : -INFINITY; }, s);
      if (!(bound > lowest)) break;
    }
    const A from = bound > lowest ? bound : lowest;  // masked keys are below the lowest number
    const A total = row.sum([=](A s_j) { return s_j >= from ? scalar::exp(s_j - top) : A(0); }, s);
    row.map(w, [&](A s_j) { return s_j >= from ? scalar::exp(s_j - top) / total : A(0); }, s);
  }
  template <class Row, class T, class A = Arithmetic<T>>
  HOST_DEVICE void backward(Row row, In<T> weights, In<T> dw, Out<T> ds) const {
    const auto w = row.preload(weights), g = row.preload(dw);
    const A mean = row.sum([](A w_j, A g_j) { return w_j > 0 ? w_j * g_j : A(0); }, w, g);
    row.map(ds, [&](A w_j, A g_j) { return w_j > 0 ? w_j * (g_j - mean) : A(0); }, w, g);
  }
};

Tensor reference(const Tensor& s, const TopK& rule) {
  const Tensor on = heaviside(weights_by(rule, s.detach())), none = Tensor::full({1}, -INFINITY, s.dtype());
  const Tensor e = where(on, exp(where(on, s, none)), Tensor::zeros({1}, s.dtype()));
  return e / maximum(sum(e, {-1}, true), Tensor::full({1}, 1e-300, s.dtype()));
}
REGISTER_ROW_RULE(TopK, reference, "top_k(k=1)", "top_k(k=3)");

}  // namespace
}  // namespace orrery::nn
