// Attention as a plain f64 loop over queries and keys, by the formulas in
// engine/attention_formula/problem.h. Softmax is differentiated step by step (exponentials, sum,
// quotient), not by the engine's short form.
#pragma once

#include <algorithm>

#include "tests/support/attention_case.h"

namespace orrery::testing {

// A key or slot that the query attends to.
struct PlainKey {
  bool slot;
  int64_t distance;                            // |x|; undefined for a slot
  size_t key, value;                           // offsets of its rows
  double kept;                                 // dropout factor
  double mask = 1, raw = 0, score = 0;         // m, t, s
  double ramp_value = INFINITY;                // r
  double unmasked = 0, weight = 0;             // F(s) or exp(s - largest score), w
  double weight_gradient = 0, derivative = 0;  // g, F'
  double score_gradient = 0;                   // ds
};

struct PlainRow {
  int64_t sequence, head, query, row;
  size_t at, read;  // offsets of q_i and o_i
  std::vector<PlainKey> keys = {};
  double total = 0, positive = 0, entropy = 0;  // sum of exponentials; P; H
};

inline bool attends(const Case& c, int64_t b, int64_t i, int64_t j) {
  const int64_t at = i + c.options.query_offset;
  if (!c.table.visible(i, j)) return false;
  if (c.options.causal && j > at) return false;
  if (!c.options.attend_to_self && j == at) return false;
  if (c.options.window > 0 && std::abs(at - j) >= c.options.window) return false;
  if (!c.lengths.empty() && j >= c.lengths[static_cast<size_t>(b)]) return false;
  return c.query_document_ids.empty() || c.query_document_ids[static_cast<size_t>(b * c.sizes.queries + i)] ==
                                             c.key_document_ids[static_cast<size_t>(b * c.sizes.keys + j)];
}

inline double dropout_factor(const Case& c, int64_t row, int64_t key) {  // as WeightDropout
  if (c.options.dropout == 0) return 1;
  const int64_t counters = (c.sizes.keys + c.sizes.slots + 3) / 4;
  const auto bits = c.options.rng_key.load().bits(static_cast<uint64_t>(row * counters + key / 4));
  return bits[static_cast<int>(key % 4)] >= c.options.dropout * 0x1p32 ? 1 / (1 - c.options.dropout) : 0;
}

inline size_t span_index(const Case& c, const PlainRow& r) {
  return static_cast<size_t>(c.options.span_per_query ? r.row : r.head);
}

inline PlainRow plain_row(const Case& c, int64_t row) {
  const Sizes& s = c.sizes;
  const int64_t i = row % s.queries, h = row / s.queries % s.query_heads, b = row / s.queries / s.query_heads;
  const int64_t token = (b * s.queries + i) * s.query_heads + h, head = h / (s.query_heads / s.kv_heads);
  PlainRow r{b, h, i, row, static_cast<size_t>(token * s.head_size), static_cast<size_t>(token * s.value_size)};
  const auto add = [&](bool slot, int64_t index, int64_t distance, int64_t number) {
    const int64_t at = index * s.kv_heads + head;
    r.keys.push_back({slot, distance, static_cast<size_t>(at * s.head_size), static_cast<size_t>(at * s.value_size),
                      dropout_factor(c, row, number)});
  };
  for (int64_t j = 0; j < s.keys; ++j) {
    if (!attends(c, b, i, j)) continue;
    add(false, b * s.keys + j, std::abs(i + c.options.query_offset - j), j);
    if (!c.spanned) continue;
    const double distance = static_cast<double>(r.keys.back().distance), R = c.options.ramp;
    r.keys.back().ramp_value = 1 + (c.operands.span[span_index(c, r)] - distance) / R;  // exactly 1 if z = |x|
    r.keys.back().mask = std::clamp(r.keys.back().ramp_value, 0., 1.);
    if (r.keys.back().ramp_value < 0) r.keys.pop_back();
  }
  for (int64_t n = 0; n < s.slots; ++n) add(true, n, 0, s.keys + n);
  return r;
}

inline void plain_scores(const Case& c, PlainRow& r) {
  const Operands& x = c.operands;
  const size_t D = static_cast<size_t>(c.sizes.head_size);
  for (PlainKey& k : r.keys) {
    const auto distance = static_cast<size_t>(k.distance);
    for (size_t d = 0; d < D; ++d) {
      const double position = c.positioned && !k.slot ? x.relative_embedding[distance * D + d] : 0;
      k.raw += c.options.scale * x.query[r.at + d] * ((k.slot ? x.slot_key : x.key)[k.key + d] + position);
    }
    if (c.biased && !k.slot) k.raw += x.relative_bias[static_cast<size_t>(r.head * c.sizes.distances) + distance];
    const double cap = c.options.soft_cap;
    k.score = cap > 0 ? cap * std::tanh(k.raw / cap) : k.raw;
  }
}

inline void plain_weights(const Case& c, PlainRow& r, Results& out) {
  double largest = -INFINITY, visible = 0, zeros = 0;
  for (const PlainKey& k : r.keys) largest = std::max(largest, k.score);
  for (PlainKey& k : r.keys) {
    const Slope<double> f = evaluate(c.kind, k.score);
    k.unmasked = c.kind == Kind::softmax ? std::exp(k.score - largest) : f.value;
    k.derivative = c.kind == Kind::softmax ? k.unmasked : f.derivative;
    k.weight = k.mask * k.unmasked, r.total += k.weight;
  }
  const auto row = static_cast<size_t>(r.row);
  out.log_sum[row] = largest + std::log(r.total);
  for (PlainKey& k : r.keys) {
    if (k.mask == 0) continue;  // scored only for the span's gradient
    if (c.kind == Kind::softmax) k.weight /= r.total;
    out.sum[row] += k.weight, r.positive += std::max(k.weight, 0.), zeros += c.kind != Kind::softmax && k.weight == 0;
    out.maximum[row] = visible++ == 0 ? k.weight : std::max(out.maximum[row], k.weight);
  }
  for (const PlainKey& k : r.keys)
    r.entropy -= k.weight > 0 ? k.weight / r.positive * std::log(k.weight / r.positive) : 0;
  out.positive_sum[row] = r.positive, out.entropy[row] = r.entropy;
  out.zero_fraction[row] = visible == 0 ? 0 : zeros / visible;
}

// Computes g, then ds; adds to dz.
inline void plain_score_gradients(const Case& c, PlainRow& r, Results& out) {
  const auto row = static_cast<size_t>(r.row);
  double inner = 0;
  for (PlainKey& k : r.keys) {
    for (size_t d = 0; d < static_cast<size_t>(c.sizes.value_size); ++d)
      k.weight_gradient +=
          k.kept * c.output_gradient[r.read + d] * (k.slot ? c.operands.slot_value : c.operands.value)[k.value + d];
    if (c.regularized) k.weight_gradient += c.sum_gradient[row];
    if (c.regularized && k.weight > 0)
      k.weight_gradient -= c.entropy_gradient[row] * (std::log(k.weight / r.positive) + r.entropy) / r.positive;
    inner += k.weight * k.weight_gradient;
  }
  for (PlainKey& k : r.keys) {  // through w = e / total, then through e = m F(s), F = exp for softmax
    const bool dead = c.kind == Kind::softmax && r.total == 0;  // no visible key: all gradients are 0
    const double g = dead ? 0 : c.kind == Kind::softmax ? (k.weight_gradient - inner) / r.total : k.weight_gradient;
    k.score_gradient = g * k.mask * k.derivative;
    if (k.ramp_value >= 0 && k.ramp_value <= 1) out.gradients.span[span_index(c, r)] += g * k.unmasked / c.options.ramp;
  }
}

inline void plain_gradients(const Case& c, const PlainRow& r, Results& out) {
  const Operands& x = c.operands;
  Operands& dx = out.gradients;
  const size_t D = static_cast<size_t>(c.sizes.head_size), Dv = static_cast<size_t>(c.sizes.value_size);
  for (const PlainKey& k : r.keys) {
    const double cap = c.options.soft_cap, w = k.weight * k.kept;
    const double dt = k.score_gradient * (cap > 0 ? 1 - std::pow(std::tanh(k.raw / cap), 2) : 1);
    const auto distance = static_cast<size_t>(k.distance);
    for (size_t d = 0; d < Dv; ++d) {
      out.output[r.read + d] += w * (k.slot ? x.slot_value : x.value)[k.value + d];
      (k.slot ? dx.slot_value : dx.value)[k.value + d] += w * c.output_gradient[r.read + d];
    }
    for (size_t d = 0; d < D; ++d) {
      const double dk = c.options.scale * dt * x.query[r.at + d];
      dx.query[r.at + d] += c.options.scale * dt * (k.slot ? x.slot_key : x.key)[k.key + d];
      (k.slot ? dx.slot_key : dx.key)[k.key + d] += dk;
      if (!c.positioned || k.slot) continue;
      dx.query[r.at + d] += c.options.scale * dt * x.relative_embedding[distance * D + d];
      dx.relative_embedding[distance * D + d] += dk;
    }
    if (c.biased && !k.slot) dx.relative_bias[static_cast<size_t>(r.head * c.sizes.distances) + distance] += dt;
  }
}

inline Results plain(const Case& c) {
  Results out;
  out.output.resize(c.output_gradient.size());
  for (Numbers* x : {&out.log_sum, &out.sum, &out.positive_sum, &out.entropy, &out.zero_fraction, &out.maximum})
    x->resize(static_cast<size_t>(c.rows()));
  const auto given = c.operands.all();
  const auto wanted = out.gradients.all();
  for (size_t n = 0; n < given.size(); ++n) wanted[n]->resize(given[n]->size());
  for (int64_t row = 0; row < c.rows(); ++row) {
    PlainRow r = plain_row(c, row);
    plain_scores(c, r), plain_weights(c, r, out), plain_score_gradients(c, r, out), plain_gradients(c, r, out);
  }
  return out;
}

}  // namespace orrery::testing
