// Sparsemax attention.  Martins and Astudillo 2016, arXiv:1602.02068.
//   w = the point of the simplex nearest to s:   w_j = max(s_j - tau, 0) with tau such that sum_j w_j = 1
// tau comes from Michelot's iteration: over A = {j : s_j > tau}, tau = (sum_A s_j - 1) / |A|, from A = all keys that
// are seen. A only shrinks, so it ends after finitely many rounds, exactly (Michelot 1986, J. Optim. Theory Appl. 50).
// On A, dtau = mean_A ds, so with g = dw:
//   ds_j = g_j - mean_A g   for j in A,   0 elsewhere;   a row of ds adds up to 0
// Hidden keys have s = -infinity and w = 0; a query that sees nothing has w = 0 everywhere.
// Kept: w, which is a (B, H, Tq, Tk) array: this rule goes by rows of all scores.
#include "engine/loops/loops.h"
#include "engine/ops/ops.h"
#include "nn/attentions/base/attention.h"
#include "nn/attentions/base/cases.h"
#include "nn/attentions/base/row_rule.h"

namespace orrery::nn {
namespace {

struct Sparsemax : RowRule<Sparsemax> {
  static constexpr const char* name = "sparsemax";

  template <class T>
  struct Forward {
    using A = Arithmetic<T>;
    In<T> scores;
    Out<T> weights;
    template <class Row>
    HOST_DEVICE void operator()(Row row, int64_t r) const {
      const auto s = row.hold(scores.at(r * row.n));
      const Out<T> w = weights.at(r * row.n);
      const A lowest = std::numeric_limits<A>::lowest();  // below every score that is seen
      A tau = lowest, count = row.sum([&](auto j) { return s[j] > lowest ? A(1) : A(0); });
      for (A before = count + 1; count > 0 && count < before;) {
        const A bound = tau;
        tau = (row.sum([&](auto j) { return s[j] > bound ? s[j] : A(0); }) - 1) / count;
        const A next = tau;
        before = count, count = row.sum([&](auto j) { return s[j] > next ? A(1) : A(0); });
      }
      const A threshold = tau;
      row.each([&](auto j) { w[j] = s[j] > threshold ? s[j] - threshold : A(0); });
    }
  };

  template <class T>
  struct Backward {
    using A = Arithmetic<T>;
    In<T> weights, dw;
    Out<T> ds;
    template <class Row>
    HOST_DEVICE void operator()(Row row, int64_t r) const {
      const auto w = row.hold(weights.at(r * row.n)), g = row.hold(dw.at(r * row.n));
      const Out<T> out = ds.at(r * row.n);
      const A count = row.sum([&](auto j) { return w[j] > 0 ? A(1) : A(0); });
      const A mean = row.sum([&](auto j) { return w[j] > 0 ? g[j] : A(0); }) / (count > 0 ? count : A(1));
      row.each([&](auto j) { out[j] = w[j] > 0 ? g[j] - mean : A(0); });
    }
  };
};

// The support is taken as known; on it the formula is a mean and a difference.
Tensor reference(const Tensor& s) {
  const Tensor on = step(record(Sparsemax{}, s.detach())), zero = Tensor::zeros({1}, s.dtype());
  const Tensor inside = where(on, s, zero), one = Tensor::full({1}, 1, s.dtype());
  const Tensor tau = (sum(inside, {-1}, true) - 1.0) / maximum(sum(on, {-1}, true), one);
  return where(on, inside - tau, zero);
}

class SparsemaxAttention final : public AttentionLayer {
 public:
  using Settings = AttentionSettings;
  static inline const Info info{.name = "sparsemax",
                                .formula = "o_i = sum_j max(s_ij - tau_i, 0) v_j, weights of a row add up to 1",
                                .source = "Martins and Astudillo 2016, arXiv:1602.02068",
                                .parameters = "as softmax",
                                .keeps = "q, k, v, scores and weights (B, H, Tq, Tk)"};
  SparsemaxAttention(const Spec& spec, const AttentionLayerOptions& options)
      : AttentionLayer(info.name, settings_from<Settings>(spec), options, {.span = false, .slots = false}) {}

 private:
  Tensor read(const AttentionInputs& r, const AttentionOptions& o, Pass&) override {
    return read_values(weights(r, o), r, o);
  }
  Tensor weights(const AttentionInputs& r, const AttentionOptions& o) override {
    const Tensor s = masked_scores(r, o);
    return by_simple_operations() ? reference(s) : record(Sparsemax{}, s);
  }
};
REGISTER_ATTENTION(SparsemaxAttention);
const bool cases = add_attention_cases("sparsemax", {"sparsemax", "sparsemax(gate=sigmoid, scale=1)"});
const bool dropping =
    add_attention_case("attention", "sparsemax", {.spec = "sparsemax(dropout=0.3)", .dropout = true, .cross = true});

}  // namespace
}  // namespace orrery::nn
