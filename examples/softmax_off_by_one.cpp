// Softmax off by one: the weights of a head may sum to less than 1, down to 0. Miller 2023,
// "Attention is off by one", evanmiller.org/attention-is-off-by-one.html.
//   w_j = exp(s_j) / (1 + sum_k exp s_k)        over the visible keys
// Numerator and denominator are multiplied by exp(-m), m = max(0, max s), so that no exp overflows.
// As for softmax, dw_j/ds_k = w_j ([j = k] - w_k), so with g = dw:
//   ds_j = w_j (g_j - sum_k w_k g_k)
// Saved for backward: w (B, H, Tq, Tk).
#include "engine/math/scalar.h"
#include "engine/ops/ops.h"
#include "nn/attentions/base/row_rule.h"

namespace orrery::nn {
namespace {

struct SoftmaxOffByOne {
  static inline const Info info{.name = "softmax_off_by_one",
                                .formula = "w_j = exp(s_j) / (1 + sum_k exp s_k)",
                                .source = "Miller 2023, Attention is off by one",
                                .parameters = "as softmax",
                                .saves = "q, k, v, weights (B, H, Tq, Tk)"};
  template <class Row, class T>
  HOST_DEVICE void forward(Row row, In<T> scores, Out<T> w) const {
    const auto s = row.preload(scores);
    const auto top = row.max([](auto s_j) { return s_j > 0 ? s_j : 0; }, s);
    const auto total = scalar::exp(-top) + row.sum([=](auto s_j) { return scalar::exp(s_j - top); }, s);
    row.map(w, [&](auto s_j) { return scalar::exp(s_j - top) / total; }, s);
  }
  template <class Row, class T>
  HOST_DEVICE void backward(Row row, In<T> weights, In<T> dw, Out<T> ds) const {
    const auto w = row.preload(weights), g = row.preload(dw);  // g of a masked key is undefined, possibly NaN
    const auto mean = row.sum([](auto w_j, auto g_j) { return w_j > 0 ? w_j * g_j : 0; }, w, g);
    row.map(ds, [&](auto w_j, auto g_j) { return w_j > 0 ? w_j * (g_j - mean) : 0; }, w, g);
  }
};

Tensor reference(const Tensor& s) {
  const Tensor e = exp(s);  // 0 for masked keys
  return e / (sum(e, {-1}, true) + 1.0);
}
REGISTER_ROW_RULE(SoftmaxOffByOne, reference);

}  // namespace
}  // namespace orrery::nn
