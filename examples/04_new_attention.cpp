// A new attention in one file: a rule that turns scores into weights, its derivative, its layer and its name.  Put into
// nn/attentions/ without the main function below, the program knows it; here it stands in an example.
//
// Taylor softmax: the exponential replaced by its second-order polynomial, which is positive everywhere.
// De Brebisson and Vincent 2015, arXiv:1511.05042.
//   t_j = 1 + s_j + s_j^2 / 2,   w_j = t_j / sum_k t_k        over the keys that a query sees
// With t_j' = 1 + s_j and g = dw, by the quotient rule:
//   ds_j = t_j' (g_j - sum_k w_k g_k) / sum_k t_k
// Kept: s with minus infinity at hidden keys, and 1 / sum t of each row.
#include <iostream>

#include "engine/autograd/autograd.h"
#include "engine/base/dispatch.h"
#include "engine/loops/loops.h"
#include "engine/ops/ops.h"
#include "nn/attentions/base/attention.h"
#include "nn/base/gradient_case.h"
#include "nn/losses/base/loss.h"
#include "nn/optimizers/base/optimizer.h"

using namespace orrery;

namespace {

// A row operation speaks to a row: a vectorized loop on the CPU, a warp or block on a GPU.
template <class T>
struct Forward {
  using A = Arithmetic<T>;
  In<T> scores;
  Out<T> weights;
  A* share;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const In<T> s = scores.at(r * row.n);
    const Out<T> w = weights.at(r * row.n);
    const A lowest = std::numeric_limits<A>::lowest(), half = A(0.5);  // hidden keys lie below the lowest number
    const A total = row.sum([&](int j) { return s[j] >= lowest ? 1 + s[j] + half * s[j] * s[j] : A(0); });
    const A part = total > 0 ? 1 / total : A(0);
    row.each([&](int j) { w[j] = s[j] >= lowest ? (1 + s[j] + half * s[j] * s[j]) * part : A(0); });
    row.once([&] { share[r] = part; });
  }
};

template <class T>
struct Backward {
  using A = Arithmetic<T>;
  In<T> scores, weights, dw;
  const A* share;
  Out<T> ds;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const In<T> s = scores.at(r * row.n), w = weights.at(r * row.n), g = dw.at(r * row.n);
    const Out<T> out = ds.at(r * row.n);
    const A lowest = std::numeric_limits<A>::lowest(), part = share[r];
    const A inner = row.sum([&](int j) { return w[j] * g[j]; });
    row.each([&](int j) { out[j] = s[j] >= lowest ? (1 + s[j]) * (g[j] - inner) * part : A(0); });
  }
};

struct TaylorSoftmax {
  static constexpr const char* name = "taylor_softmax";
  Tensor forward(Saved& saved, const Tensor& s) const {
    const Tensor w = Tensor::empty_like(s);
    const Tensor share = Tensor::empty(s.shape().with(-1, 1), s.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32);
    dispatch(s.dtype(), name, [&]<class T>() {
      rows(s.device(), s.numel() / s.size(-1), static_cast<int>(s.size(-1)),
           Forward<T>{{s.data<T>()}, {w.mutable_data<T>()}, share.mutable_data<Arithmetic<T>>()});
    });
    saved.save(s, w, share);
    return w;
  }
  Gradients<1> backward(const Saved& saved, const Tensor& dw) const {
    const Tensor &s = saved[0], &w = saved[1], &share = saved[2], ds = Tensor::empty_like(s);
    dispatch(s.dtype(), name, [&]<class T>() {
      rows(s.device(), s.numel() / s.size(-1), static_cast<int>(s.size(-1)),
           Backward<T>{
               {s.data<T>()}, {w.data<T>()}, {dw.data<T>()}, share.data<Arithmetic<T>>(), {ds.mutable_data<T>()}});
    });
    return {ds};
  }
};

// The same by simple operations, which differentiate themselves: the witness against the lines above.
Tensor reference(const Tensor& s) {
  const Tensor seen = step(s + 1e30);
  const Tensor zero = Tensor::zeros({1}, s.dtype()), finite = where(seen, s, zero);
  const Tensor t = where(seen, finite * finite * 0.5 + finite + 1.0, zero);
  const Tensor total = sum(t, {-1}, true), some = step(total);
  return where(some, t / where(some, total, Tensor::full({1}, 1, s.dtype())), zero);
}

// The layer around the rule brings projections, heads, gate, normalization of queries and keys, positions and masks.
class TaylorAttention final : public nn::AttentionLayer {
 public:
  using Settings = nn::AttentionSettings;
  static inline const nn::Info info{.name = "taylor",
                                    .formula = "w_j = t_j / sum t, t = 1 + s + s^2 / 2",
                                    .source = "De Brebisson and Vincent 2015, arXiv:1511.05042",
                                    .parameters = "as softmax",
                                    .keeps = "q, k, v, scores and weights (B, H, Tq, Tk), 1/sum of each row"};
  TaylorAttention(const Spec& spec, const nn::AttentionOptions& options)
      : AttentionLayer(info.name, nn::settings_from<Settings>(spec), options, {.span = false, .slots = false}) {}

 private:
  Tensor read(const nn::Reading& r, const nn::ReadingOptions& o, nn::Pass&) override {
    return nn::read_values(weights(r, o), r, o);
  }
  Tensor weights(const nn::Reading& r, const nn::ReadingOptions& o) override {
    const Tensor s = nn::hidden_scores(r, o);
    return nn::by_simple_operations() ? reference(s) : record(TaylorSoftmax{}, s);
  }
};
REGISTER_ATTENTION(TaylorAttention);
const bool cases = nn::add_attention_cases("taylor", {"taylor", "taylor(gate=silu, qk_norm=rms)"});

// What `orrery gradcheck taylor` and the tests do: explicit against reference, and against difference quotients.
void witnesses() {
  for (const nn::RegisteredCase& one : nn::gradient_cases()) {
    if (one.name != "taylor") continue;
    const GradientReport report = check_gradients(nn::make_case(one));
    std::cout << (report.passed ? "passed  " : "FAILED  ") << one.title << ": " << report.comparisons
              << " comparisons\n";
    check(report.passed, "04: the gradient of ", one.title);
  }
}

// A layer that learns to copy the token before: attention is the only way to see it.
void in_a_layer() {
  constexpr int64_t width = 16, time = 12, batch = 8;
  const auto layer = nn::make_attention(parse_spec("taylor(scale=1)"), {.width = width, .heads = 2, .std = 0.3});
  nn::initialize(*layer, 1);
  nn::FlatParameters parameters(*layer);
  const auto optimizer = nn::make_optimizer(parse_spec("adamw(weight_decay=0)"), parameters);
  // Half of the channels say what a token is, the others where it stands.
  const Tensor content = Tensor::empty(Shape{batch, time, width / 2}), place = Tensor::empty(Shape{1, time, width / 2});
  nn::fill(content, nn::normal(1), RandomKey{7, 0});
  nn::fill(place, nn::normal(1), RandomKey{7, 1});
  const Tensor x = concatenate({content, broadcast_to(place, content.shape())}, 2);
  const Tensor before = concatenate({slice(x, 1, 0, 1), slice(x, 1, 0, time - 1)}, 1);
  double first = 0, last = 0;
  for (int step = 0; step < 400; ++step) {
    parameters.zero_gradients();
    nn::Pass pass;
    const Tensor miss = (*layer)(x, pass) - before, loss = mean(miss * miss);
    last = loss.item();
    if (step == 0) first = last;
    loss.backward();
    optimizer->step(1e-2);
  }
  std::cout << "taylor(scale=1): loss " << first << " before, " << last << " after 400 steps\n";
  check(last < 0.5 * first, "04: the layer does not learn: ", first, " to ", last);
}

}  // namespace

int main() {
  witnesses();
  in_a_layer();
  std::cout << "all as it should be; next: orrery try examples/04_new_attention.cpp\n";
}
