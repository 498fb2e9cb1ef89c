// The formulas of engine/attention_formula/problem.h in simple operations, differentiated by
// autograd: slow but simple. This independent check of the fused paths shares no code with them:
// nothing here calls engine/attention_formula/formula.h.
#include <algorithm>
#include <cmath>

#include "engine/autograd/autograd.h"
#include "engine/autograd/hooks.h"
#include "engine/loops/loops.h"
#include "engine/math/random.h"
#include "engine/ops/ops.h"
#include "engine/types/check.h"
#include "engine/types/dispatch.h"
#include "nn/attentions/base/fused.h"
#include "nn/attentions/base/masked_matmul.h"

namespace orrery::nn {
namespace {

// (B, Tk, Hk, D) -> (B, H, Tk, D), each kv head repeated for the query heads that share it
Tensor heads_first(const Tensor& x, int64_t heads) {
  const Tensor t = permute(x, {0, 2, 1, 3});
  if (t.size(1) == heads) return t;
  const Shape once{t.size(0), t.size(1), 1, t.size(2), t.size(3)};
  return broadcast_to(t.reshape(once), once.with(2, heads / t.size(1)))
      .reshape(Shape{t.size(0), heads, t.size(2), t.size(3)});
}
// (N, Hk, D) -> (B, H, N, D)
Tensor slots_of(const Tensor& x, int64_t batch, int64_t heads) {
  const Shape once{1, x.size(0), x.size(1), x.size(2)};
  return heads_first(broadcast_to(x.reshape(once), once.with(0, batch)), heads);
}
Tensor joined(const Tensor& context, const Tensor& slots, int axis) {
  return slots ? concatenate({context, slots}, axis) : context;
}

// The bits of the named mask's table, rows of 32-bit words. In reference mode they come from its formulas, pair by pair
// on the host, instead of the table that the kernels read. Undefined if it hides no pair.
Tensor named_bits(const AttentionInputs& x, const AttentionMask& m) {
  if (!m.rule || !in_reference_mode()) return m.table.bits;
  const int64_t queries = x.query.size(1), keys = x.key.size(1), words = (keys + 31) / 32;
  std::vector<int32_t> bits(static_cast<size_t>(queries * words));
  for (int64_t i = 0; i < queries; ++i)
    for (int64_t j = 0; j < keys; ++j)
      if (m.rule->visible(m.keys_dropped + m.query_offset + i, m.keys_dropped + j))
        bits[static_cast<size_t>(i * words + j / 32)] |= static_cast<int32_t>(1u << j % 32);
  return Tensor::from({queries, words}, bits).to(x.query.device());
}

// A second implementation of AttentionMask, for one pair; it shares no code with the first.
struct PairMask {
  bool causal, attend_to_self;
  int64_t offset, window, queries, keys, words;
  const int32_t *lengths, *query_document_ids, *key_document_ids, *bits;

  static PairMask of(const AttentionInputs& x, const AttentionMask& m, const Tensor& bits) {
    const auto numbers = [](const Tensor& t) { return t ? t.data<int32_t>() : nullptr; };
    const int64_t queries = x.query.size(1), keys = x.key.size(1), words = bits ? bits.size(1) : 0;
    return {m.causal, m.attend_to_self, m.query_offset, m.window, queries, keys, words, numbers(m.lengths),
            numbers(m.query_document_ids), numbers(m.key_document_ids), numbers(bits)};
  }
  HOST_DEVICE bool is_visible(int64_t batch, int64_t i, int64_t j) const {
    const int64_t x = i + offset - j;
    if (causal && x < 0) return false;
    if (!attend_to_self && x == 0) return false;
    if (window > 0 && (x >= window || -x >= window)) return false;
    if (lengths && j >= lengths[batch]) return false;
    if (bits && !(static_cast<uint32_t>(bits[i * words + j / 32]) >> j % 32 & 1u)) return false;
    return !query_document_ids || query_document_ids[batch * queries + i] == key_document_ids[batch * keys + j];
  }
};
// Row r is query r % queries of sequence r / queries.
template <class T>
struct VisiblePairs {  // 1 where a key or a slot is visible to a query, else 0
  PairMask mask;
  Out<T> visible;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const PairMask my = mask;
    const Out<T> out = visible.at(r * row.n);
    const int64_t batch = r / my.queries, i = r % my.queries;
    row.each([=](int j) { out[j] = Arithmetic<T>(j >= my.keys || my.is_visible(batch, i, j) ? 1 : 0); });
  }
};
struct Distances {  // |i + offset - j|, but at most `max_distance`, for row i
  int64_t offset, max_distance;
  int32_t* distance;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t i) const {
    int32_t* const out = distance + i * row.n;
    const int64_t position = i + offset, limit = max_distance;
    row.each([=](int j) {
      const int64_t x = position < j ? j - position : position - j;
      out[j] = static_cast<int32_t>(x < limit ? x : limit);
    });
  }
};
template <class T>
struct DropoutFactors {  // 0 or 1 / (1 - dropout) for each weight of row r, as WeightDropout defines
  DeviceRandomKey rng;
  double dropout;
  Out<T> factor;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const int64_t blocks = (row.n + 3) / 4;
    const RandomKey random = rng.load();
    const double threshold = dropout * 0x1p32;
    const Arithmetic<T> scale = static_cast<Arithmetic<T>>(1 / (1 - dropout));
    const Out<T> out = factor.at(r * row.n);
    row.each([=](int j) {
      const uint32_t word = random.bits(static_cast<uint64_t>(r * blocks + j / 4))[j % 4];
      out[j] = static_cast<double>(word) >= threshold ? scale : Arithmetic<T>(0);
    });
  }
};

// |i + query_offset - j| for all pairs, (Tq, Tk) i32
Tensor distances(const AttentionInputs& in, const AttentionOptions& o, int64_t max_distance) {
  const Tensor x = Tensor::empty_like(in.query, Shape{in.query.size(1), in.key.size(1)}, Dtype::i32);
  rows(x.device(), x.size(0), static_cast<int>(x.size(1)),
       Distances{o.mask.query_offset, max_distance, x.mutable_data<int32_t>()});
  return x;
}

// r = 1 + (z - |x|) / R, infinite for slots: (B or 1, H, Tq, Tk + N)
Tensor ramp_value(const AttentionInputs& in, const AttentionOptions& o) {
  const Dtype dtype = in.query.dtype();
  const int64_t batch = in.span.shape().rank() == 3 ? in.query.size(0) : 1, queries = in.query.size(1);
  const Tensor z = in.span.shape().rank() == 3 ? in.span.reshape(Shape{batch, in.span.size(1), queries, 1})
                                               : in.span.reshape(Shape{1, in.span.size(0), 1, 1});
  const Tensor ramp = (z.to(dtype) - distances(in, o, int64_t{1} << 29).to(dtype)) / o.ramp + 1.0;
  if (!in.slot_key) return ramp;
  const Shape slots{ramp.size(0), ramp.size(1), ramp.size(2), in.slot_key.size(0)};
  return concatenate({ramp, Tensor::full(slots, INFINITY, dtype, ramp.device())}, 3);
}

// m = clip(r, 0, 1), with derivative 1 at both ends too.
Tensor span_mask(const Tensor& ramp) {
  const Tensor above = heaviside(ramp - 1.0), outside = heaviside(-ramp) + above;
  return where(outside, above, ramp);
}

// 1 where attend_to_self, the named mask, causality, window, lengths and documents make a key visible, else 0.
Tensor position_mask(const AttentionInputs& in, const AttentionOptions& o) {
  const int64_t batch = o.mask.lengths || o.mask.query_document_ids ? in.query.size(0) : 1;
  const int64_t queries = in.query.size(1), keys = in.key.size(1), slots = in.slot_key ? in.slot_key.size(0) : 0;
  const Tensor visible = Tensor::empty_like(in.query, Shape{batch, 1, queries, keys + slots}),
               bits = named_bits(in, o.mask);
  dispatch(visible.dtype(), "attention_mask", [&]<class T>() {
    rows(visible.device(), batch * queries, static_cast<int>(keys + slots),
         VisiblePairs<T>{PairMask::of(in, o.mask, bits), {visible.mutable_data<T>()}});
  });
  return visible;
}

// 1 for pairs with a score: visible keys, and keys at the far end of the ramp (r = 0, weight 0).
Tensor scored_pairs(const AttentionInputs& in, const AttentionOptions& o) {
  if (!in.span) return position_mask(in, o);
  const Tensor ramp = ramp_value(in, o).detach();
  return where(heaviside(-ramp), Tensor::zeros_like(ramp, {1}), position_mask(in, o));
}

// F(s) of s (B, H, Tq, Tk + N), with parameters (n), or (H, n) for each head.
Tensor apply_function(const Activation& function, const Tensor& s, const Tensor& parameters) {
  const Tensor p = parameters ? parameters.to(s.dtype()) : Tensor();
  if (!p || p.shape().rank() == 1) return function(s, p);
  return permute(function(permute(s, {0, 2, 3, 1}), transpose(p)), {0, 3, 1, 2});  // heads as the channels of F
}

// Returns an empty name if the scores have none, as those of a feed-forward.
std::string step_name(const AttentionOptions& o, std::string_view name) {
  if (!o.hooked_name.ends_with("scores")) return "";
  return o.hooked_name.starts_with("slot") ? text("slot_", name) : std::string(name);
}

}  // namespace

void show_step(const AttentionOptions& o, std::string_view name, const std::function<Tensor()>& value) {
  const std::string full = step_name(o, name);
  if (!full.empty() && is_hooked(o.hooked_path, full)) hook(o.hooked_path, full, value());
}
bool has_hooked_step(const AttentionOptions& o) {
  const auto names = {"score_query",    "score_key",       "score_scale", "score_position", "score_cap",
                      "weight_largest", "weight_function", "weight_span", "weight_total",   "weight_factor"};
  return std::any_of(names.begin(), names.end(), [&](const char* name) {
    return may_be_hooked(o.hooked_path, step_name(o, name));
  });
}

Tensor attention_scores(const AttentionInputs& in, const AttentionOptions& o) {
  const int64_t batch = in.query.size(0), queries = in.query.size(1), heads = in.query.size(2), size = in.query.size(3);
  const Tensor q = permute(in.query, {0, 2, 1, 3}), visible = scored_pairs(in, o), zero = Tensor::zeros_like(q, {1});
  const Tensor k = joined(heads_first(in.key, heads), in.slot_key ? slots_of(in.slot_key, batch, heads) : Tensor(), 2);
  Tensor s = masked_matmul_transposed(q, k, visible) * o.scale, position;
  const auto expand_term = [&](const Tensor& term) {  // slots have no distance
    const Tensor context_term = where(slice(visible, 3, 0, in.key.size(1)), term, zero);
    if (!in.slot_key) return context_term;
    return joined(context_term, Tensor::zeros_like(q, context_term.shape().with(3, in.slot_key.size(0))), 3);
  };
  if (in.relative_embedding) {  // p_|x| for every pair: (Tq, Tk, D)
    const Tensor p = index_select(in.relative_embedding, distances(in, o, in.relative_embedding.size(0) - 1));
    position = expand_term(sum(q.reshape(Shape{batch, heads, queries, 1, size}) * p, {-1}) * o.scale);
    s = s + position;
  }
  if (in.relative_bias) {
    const Tensor b = index_select(transpose(in.relative_bias), distances(in, o, in.relative_bias.size(1) - 1));
    const Tensor term =
        expand_term(permute(b, {2, 0, 1}).to(s.dtype()).reshape(Shape{1, heads, queries, in.key.size(1)}));
    s = s + term, position = position ? position + term : term;
  }
  show_step(o, "score_query", [&] { return q; });
  show_step(o, "score_key", [&] { return k; });
  show_step(o, "score_scale", [&] { return Tensor::full({1}, o.scale, Dtype::f64); });
  show_step(o, "score_cap", [&] { return Tensor::full({1}, o.soft_cap, Dtype::f64); });
  if (position) show_step(o, "score_position", [&] { return position; });
  if (o.soft_cap > 0) s = tanh(s / o.soft_cap) * o.soft_cap;
  return o.hooked_name.empty() ? s : hook(o.hooked_path, o.hooked_name, s);
}

Tensor attention_mask(const AttentionInputs& in, const AttentionOptions& o) {
  return in.span ? position_mask(in, o) * heaviside(ramp_value(in, o)).detach() : position_mask(in, o);
}

Tensor masked_scores(const AttentionInputs& in, const AttentionOptions& o) {
  const Tensor s = attention_scores(in, o);
  return where(attention_mask(in, o), s, Tensor::full_like(s, {1}, -INFINITY));
}

Tensor attention_weights(const AttentionInputs& in, const AttentionOptions& o,
                         const std::optional<Activation>& function) {
  const Tensor s = attention_scores(in, o), zero = Tensor::zeros_like(s, {1});
  const Tensor visible = attention_mask(in, o), counted = scored_pairs(in, o);
  const Tensor m = in.span ? span_mask(ramp_value(in, o)) : Tensor();
  const auto masked = [&](const Tensor& w) { return where(counted, m ? w * m : w, zero); };
  if (m) show_step(o, "weight_span", [&] { return m; });
  if (function) {
    const Tensor w = apply_function(*function, where(counted, s, zero), in.parameters);
    show_step(o, "weight_function", [&] { return w; });
    return masked(w);
  }
  const Tensor masked_s = where(visible, s, Tensor::full_like(s, {1}, -INFINITY));
  const Tensor largest = max(masked_s, -1, true).detach();
  const Tensor some = heaviside(sum(broadcast_to(visible, s.shape()), {-1}, true));  // nothing visible: zeros
  // A score at the far end of the ramp may exceed the largest visible score. It is clamped, because
  // an infinite exponential times its weight of 0 would be NaN.
  const Tensor limit = Tensor::full_like(s, {1}, s.dtype() == Dtype::f64 ? -700 : -80);
  const Tensor below = -maximum(limit, where(some, largest, zero) - s);
  const Tensor exponential = exp(where(counted, below, zero)), e = masked(exponential), total = sum(e, {-1}, true);
  show_step(o, "weight_largest", [&] { return largest; });
  show_step(o, "weight_function", [&] { return exponential; });
  show_step(o, "weight_total", [&] { return total; });
  return where(some, e / where(some, total, Tensor::full_like(s, {1}, 1)), zero);
}

Tensor apply_weights(const Tensor& weights, const AttentionInputs& in, const AttentionOptions& o) {
  const int64_t heads = in.query.size(2);
  const Tensor visible = scored_pairs(in, o),
               values = joined(heads_first(in.value, heads),
                               in.slot_value ? slots_of(in.slot_value, in.query.size(0), heads) : Tensor(), 2);
  if (o.dropout == 0) return permute(masked_matmul(weights, values, visible), {0, 2, 1, 3});
  const int64_t keys = weights.size(3);
  const Tensor factors = Tensor::empty_like(weights);
  dispatch(weights.dtype(), "dropout", [&]<class T>() {
    rows(weights.device(), weights.shape().rows(), static_cast<int>(keys),
         DropoutFactors<T>{o.rng_key, o.dropout, {factors.mutable_data<T>()}});
  });
  return permute(masked_matmul(weights * factors, values, visible), {0, 2, 1, 3});
}

AttentionOutput row_statistics(const Tensor& w, const Tensor& visible) {
  const Tensor zero = Tensor::zeros_like(w, {1}), one = Tensor::full_like(w, {1}, 1);
  const Tensor positive = maximum(zero, w), total = sum(positive, {-1}, true), alive = heaviside(total);
  const Tensor p = positive / where(alive, total, one), above = heaviside(p);
  const Tensor counted = broadcast_to(visible, w.shape()), count = sum(counted, {-1});
  const Tensor zeros = sum(counted * where(w, zero, one), {-1});
  const Tensor largest = max(where(counted, w, Tensor::full_like(w, {1}, -INFINITY)), -1);
  return {.output = {},
          .sum = sum(w, {-1}),
          .entropy = -sum(where(above, p * log(where(above, p, one)), zero), {-1}),
          .zero_fraction = (zeros / maximum(count, one)).detach(),
          .maximum = where(count, largest, zero).detach()};
}

AttentionOutput attention_reference(const AttentionInputs& inputs, const AttentionOptions& options,
                                    const std::optional<Activation>& function, bool statistics) {
  const Tensor w = attention_weights(inputs, options, function);
  AttentionOutput result;
  if (statistics) result = row_statistics(w, attention_mask(inputs, options));
  result.output = apply_weights(w, inputs, options);
  return result;
}

}  // namespace orrery::nn
