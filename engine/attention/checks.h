// Checks of attention's arguments; error messages name the argument and its value.
#pragma once

#include <cmath>

#include "engine/attention/problem.h"
#include "engine/types/check.h"

namespace orrery::detail::attention {

inline void check_options(const AttentionOptions& o) {
  const AttentionMask& m = o.mask;
  check(m.window >= 0, "attention: window (", m.window, ") must be a number of keys, or 0 for no window");
  check(std::abs(m.query_offset) < int64_t{1} << 29, "attention: query_offset (", m.query_offset,
        ") must be below 2^29 in magnitude");
  check(!m.query_document_ids == !m.key_document_ids, "attention: document ids of ",
        m.query_document_ids ? "queries" : "keys", " are given without those of ",
        m.query_document_ids ? "keys" : "queries", "; give both or neither");
  check(o.soft_cap >= 0 && std::isfinite(o.soft_cap), "attention: soft_cap (", o.soft_cap,
        ") must be a positive number, or 0 for no cap");
  check(o.ramp >= 0 && std::isfinite(o.ramp), "attention: ramp (", o.ramp,
        ") must be a positive number of tokens, or 0 without a span");
  check(o.dropout >= 0 && o.dropout < 1, "attention: dropout (", o.dropout, ") must be a fraction in [0, 1)");
}

inline void check_tensor(const char* what, const Tensor& x, const Shape& shape, Dtype dtype) {
  check(!x || (x.shape() == shape && x.dtype() == dtype), "attention: ", what, " have shape ", x ? x.shape() : Shape(),
        " and dtype ", orrery::name(x ? x.dtype() : dtype), "; they must have shape ", shape, " and dtype ",
        orrery::name(dtype));
}

inline void check_shapes(const AttentionInputs& x) {
  const Tensor &q = x.query, &k = x.key, &v = x.value;
  check_same_kind("attention", q, k);
  check_same_kind("attention", q, v);
  check(q.shape().rank() == 4 && k.shape().rank() == 4 && v.shape().rank() == 4 && q.size(-1) == k.size(-1) &&
            k.shape().with(-1, 1) == v.shape().with(-1, 1) && q.size(0) == k.size(0) && k.size(2) >= 1 &&
            q.size(2) >= 1 && q.size(2) % k.size(2) == 0,
        "attention: queries ", q.shape(), ", keys ", k.shape(), ", values ", v.shape(),
        " do not fit; they must be (batch, time, heads, size), with query heads a multiple of key heads");
  check(q.size(3) >= 1 && v.size(3) >= 1, "attention: head size (", q.size(3), ") and value size (", v.size(3),
        ") must be at least 1");
  check(!x.slot_key == !x.slot_value, "attention: ", x.slot_key ? "slot_key" : "slot_value",
        " is given alone; give both slot_key and slot_value, or neither");
  const Dtype rows = q.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  if (x.slot_key) {
    const int64_t n = x.slot_key.size(0);
    check_tensor("slot keys", x.slot_key, Shape{n, k.size(2), k.size(3)}, q.dtype());
    check_tensor("slot values", x.slot_value, Shape{n, v.size(2), v.size(3)}, q.dtype());
  }
  const Tensor &p = x.relative_embedding, &b = x.relative_bias;
  if (p) check_tensor("relative embeddings", p, Shape{p.size(0), q.size(3)}, q.dtype());
  if (b) check_tensor("relative biases", b, Shape{q.size(2), b.size(-1)}, rows);
  check(!p || !b || p.size(0) == b.size(1), "attention: relative embeddings of size ", p ? p.size(0) : 0,
        " and relative biases of size ", b ? b.size(-1) : 0, " must cover the same distances");
  const int64_t distances = p ? p.size(0) : b ? b.size(1) : 1;
  check(distances >= 1, "attention: the number of relative-position terms is 0; at least 1 is needed");
  if (x.span)
    check_tensor("spans", x.span,
                 x.span.shape().rank() == 1 ? Shape{q.size(2)} : Shape{q.size(0), q.size(2), q.size(1)}, rows);
  if (x.parameters) check_tensor("parameters of F", x.parameters, Shape{q.size(2), x.parameters.size(-1)}, rows);
  const int64_t largest =
      maximum(maximum(q.size(1), k.size(1)), maximum(x.slot_key ? x.slot_key.size(0) : 0, distances));
  check(largest < int64_t{1} << 29, "attention: ", largest,
        " tokens, slots or distances are too many; at most 2^29 - 1 are allowed");
}

inline void check_mask(const AttentionInputs& x, const AttentionMask& m) {
  const int64_t batch = x.query.size(0), queries = x.query.size(1), keys = x.key.size(1);
  check_tensor("lengths", m.lengths, Shape{batch}, Dtype::i32);
  check_tensor("document ids of queries", m.query_document_ids, Shape{batch, queries}, Dtype::i32);
  check_tensor("document ids of keys", m.key_document_ids, Shape{batch, keys}, Dtype::i32);
  const Tensor& bits = m.table.bits;
  check(!bits || (bits.size(0) >= queries && 32 * bits.size(1) >= keys), "attention: the mask's table has ",
        bits ? bits.shape() : Shape(), " words, but there are ", queries, " queries and ", keys, " keys");
}

// ---- checks that read tensor data

// Returns the largest distance |x| >= `min_distance` at which a key is not masked for the query, or
// 0 if there is none. `reach`: keys farther away are beyond the span.
inline int64_t largest_distance(const MaskView& mask, int64_t sequence, int query, double reach, int64_t min_distance) {
  const int64_t position = query + mask.query_offset,
                max_distance = static_cast<int64_t>(minimum(std::floor(reach), 0x1p30));
  const Interval keys = keys_of_queries(mask, query, 1, length_of(mask, sequence));
  const auto is_visible = [&](int64_t key) { return is_allowed(mask, sequence, query, static_cast<int>(key)); };
  int64_t found = 0;
  for (int64_t key = maximum(keys.begin, position - max_distance); key < minimum(keys.end, position - min_distance + 1);
       ++key)
    if (is_visible(key)) {
      found = position - key;
      break;
    }
  for (int64_t key = minimum(keys.end - 1, position + max_distance);
       key >= maximum(keys.begin, position + maximum(min_distance, found + 1)); --key)
    if (is_visible(key)) return key - position;
  return found;
}

template <class A>
void check_distances(const AttentionProblem<A>& p) {
  const int64_t min_distance = maximum(p.distances, 1);
  for (int64_t b = 0; b < p.batch; ++b)
    for (int i = 0; i < p.queries; ++i) {
      double reach = p.span ? 0 : INFINITY;
      for (int64_t h = 0; p.span && h < p.query_heads; ++h)
        reach = maximum(reach, double{p.ramp} + p.span[p.span_per_query ? (b * p.query_heads + h) * p.queries + i : h]);
      const int64_t found = largest_distance(p, b, i, reach, min_distance);
      check(found < min_distance, "attention: the number of relative-position terms is ", p.distances, ", but query ",
            i, " of sequence ", b, " attends to a key at distance ", found, "; at least ", found + 1, " are needed");
    }
}

// Reads no data of a GPU; there the relative terms must cover every distance that could be visible.
template <class A>
void check_numbers(AttentionProblem<A> p, Device device) {
  if (device == Device::cuda) {
    p.key_lengths = p.query_document_ids = p.key_document_ids = nullptr, p.bits = nullptr, p.span = nullptr;
    p.batch = minimum(p.batch, 1);
  }
  for (int64_t b = 0; p.key_lengths && b < p.batch; ++b)
    check(p.key_lengths[b] >= 0 && p.key_lengths[b] <= p.keys, "attention: length ", p.key_lengths[b], " of sequence ",
          b, " is outside [0, ", p.keys, "]; it must be at most the number of keys");
  if (p.distances > 0) check_distances(p);
}

inline void check_gradients(const AttentionInputs& x, const AttentionOutput& forward, const AttentionOutput& dy,
                            const AttentionInputs& d) {
  const auto check_given = [](const char* what, const Tensor& requested, const Tensor& given) {
    check(given || !requested, "attention: gradients of the ", what,
          " are requested, but this input is missing; give it");
  };
  check_given("relative embedding", d.relative_embedding, x.relative_embedding);
  check_given("relative bias", d.relative_bias, x.relative_bias);
  check_given("span", d.span, x.span);
  check_given("parameters of F", d.parameters, x.parameters);
  check(!dy.entropy || (forward.entropy && forward.positive_sum),
        "attention: gradients of the entropy need the entropy and the positive sum; call attention_statistics first");
}

}  // namespace orrery::detail::attention
