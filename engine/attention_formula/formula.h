// The formulas of engine/attention_formula/problem.h for single queries, keys and scores, shared by
// the tiles of CPU and GPU and by linear attention. Letters, such as r, m, L and c, are defined there.
// A number V is float or double on a GPU, a vector of them on a CPU, where comparisons give masks
// and `c ? a : b` selects by lane. exp and log are arguments.
//
// All is in an anonymous namespace, without functions of the standard library: AVX2 and AVX-512
// kernels include this file, and a shared function would be one symbol, built for one of them.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "engine/attention_formula/mask.h"

namespace orrery {
namespace {

template <class V>
struct LaneOf {
  using type = V;
};
template <class V>
requires requires(V v) { v[0]; }
struct LaneOf<V> {
  using type = std::remove_cvref_t<decltype(V{}[0])>;
};
template <class V>
using Lane = typename LaneOf<V>::type;  // the type of an element of V

// ---- spans

// Returns r for span z at distance |x|.
template <class V>
HOST_DEVICE V ramp_value(V span, V distance, Lane<V> ramp) {
  return (span - distance) / ramp + Lane<V>(1);
}
template <class A>
constexpr A outside_ramp = std::numeric_limits<A>::infinity();  // r of a visible key without a span: m = 1
template <class A>
constexpr A masked_ramp = -outside_ramp<A>;  // r of a masked key: m = 0
// Returns true if a key has no score. `with_far_end`: r = 0 has one, for the span's gradient.
template <class V>
HOST_DEVICE auto is_masked(V r, bool with_far_end) {
  return with_far_end ? r < Lane<V>(0) : r <= Lane<V>(0);
}
// Returns m = clip(r, 0, 1).
template <class V>
HOST_DEVICE V mask_weight(V r) {
  using A = Lane<V>;
  return r <= A(0) ? V{} : r >= A(1) ? V{} + A(1) : r;
}
// Returns dm where m depends on z, 0 <= r <= 1; else 0.
template <class V>
HOST_DEVICE V span_gradient(V r, V gradient) {
  return ((r >= Lane<V>(0)) & (r <= Lane<V>(1))) ? gradient : V{};
}

// ---- dropout

template <class A>
HOST_DEVICE uint64_t dropout_counter(const WeightDropout<A>& dropout, int64_t row, int64_t key) {
  return static_cast<uint64_t>(row * dropout.counters + key / 4);
}
template <class A>
HOST_DEVICE bool dropout_keeps(const WeightDropout<A>& dropout, uint32_t word) {
  return word >= dropout.threshold;
}
template <class A>
HOST_DEVICE A dropout_factor(const WeightDropout<A>& dropout, uint32_t word) {
  return dropout_keeps(dropout, word) ? dropout.kept : A(0);
}

// ---- scores and weights

// Return s and ds/dt, given tanh(t / cap).
template <class V>
HOST_DEVICE V capped_score(V tanh, Lane<V> cap) {
  return cap * tanh;
}
template <class V>
HOST_DEVICE V cap_derivative(V tanh) {
  return Lane<V>(1) - tanh * tanh;
}

// Returns exp(s - L). A score of minus infinity has weight 0, even if all scores are minus infinity.
template <class V, class Exp>
HOST_DEVICE V softmax_weight(V s, V log_sum, const Exp& exp) {
  return s == -std::numeric_limits<Lane<V>>::infinity() ? V{} : exp(s - log_sum);
}
// Returns L, or infinity if nothing is visible, so that every weight is 0.
template <class A>
HOST_DEVICE A log_sum_or_infinity(A log_sum) {
  return log_sum == -std::numeric_limits<A>::infinity() ? std::numeric_limits<A>::infinity() : log_sum;
}
// Return w and ds. Each is 0 where its first factor is 0, even if the other is NaN. `gradient`: g - c.
template <class V>
HOST_DEVICE V times_mask_weight(V m, V unmasked) {
  return m == Lane<V>(0) ? V{} : m * unmasked;
}
template <class V>
HOST_DEVICE V softmax_score_gradient(V weight, V gradient) {
  return weight == Lane<V>(0) ? V{} : weight * gradient;
}

// Running state of a row's softmax: largest visible score so far, and sum of m exp(s - largest).
template <class V>
struct OnlineSoftmax {
  static constexpr Lane<V> lowest = -std::numeric_limits<Lane<V>>::infinity();
  V largest = V{} + lowest, sum = {}, base = {};

  // Sets the largest score so far; returns the factor by which all earlier sums shrink.
  template <class Exp>
  HOST_DEVICE V update_max(V top, const Exp& exp) {
    base = top == lowest ? V{} : top;  // nothing visible yet
    const V shrink = exp(largest - base);
    largest = top, sum *= shrink;
    return shrink;
  }
  // Returns m exp(s - largest) and adds it to the sum.
  template <class Exp>
  HOST_DEVICE V weigh(V m, V s, const Exp& exp) {
    const V w = times_mask_weight(m, exp(s - base));
    sum += w;
    return w;
  }
  template <class Log>
  HOST_DEVICE V log_sum(V total, const Log& log) const {  // total: the whole sum
    return total == Lane<V>(0) ? V{} + lowest : largest + log(total);
  }
};

// ---- statistics of the rows

// Sums over the weights of a row: w, p = max(w, 0) and p ln p; the number of visible keys, the
// number of zeros among them, and the largest weight.
template <class V>
struct RowSums {
  V sum = {}, positive = {}, p_log_p = {}, visible = {}, zeros = {};
  V largest = V{} - std::numeric_limits<Lane<V>>::infinity();

  template <class Log>
  HOST_DEVICE void add(V w, V is_visible, const Log& log) {  // is_visible: 1 or 0
    using A = Lane<V>;
    sum += w, visible += is_visible;
    zeros += w == A(0) ? is_visible : V{};
    positive += w > A(0) ? w : V{};
    p_log_p += w > A(0) ? w * log(w) : V{};
    largest = ((w > largest) & (is_visible > A(0))) ? w : largest;
  }
};
// Writes a row's statistics: H = -sum (p / P) ln (p / P) = ln P - (sum p ln p) / P
template <class A, class Log>
HOST_DEVICE void write_statistics(const RowStatistics<A>& out, int64_t index, const RowSums<A>& row, const Log& log) {
  const bool some = row.visible > 0;
  if (out.sum) out.sum[index] = row.sum;
  if (out.positive_sum) out.positive_sum[index] = row.positive;
  if (out.entropy) out.entropy[index] = row.positive > 0 ? log(row.positive) - row.p_log_p / row.positive : A(0);
  if (out.zero_fraction) out.zero_fraction[index] = some ? row.zeros / row.visible : A(0);
  if (out.maximum) out.maximum[index] = some ? row.largest : A(0);
}

// The entropy's term of g: factor (ln w + offset) where w > 0, factor = -dH / P, offset = H - ln P.
template <class V>
struct EntropyTerm {
  V factor = {}, offset = {};
  template <class Log>
  HOST_DEVICE V gradient(V w, const Log& log) const {
    return w > Lane<V>(0) ? factor * (log(w) + offset) : V{};
  }
};
template <class A, class Log>
HOST_DEVICE EntropyTerm<A> entropy_term(const StatisticsGradients<A>& given, int64_t index, const Log& log) {
  if (!given.entropy_gradient || !(given.positive_sum[index] > 0)) return {};
  return {-given.entropy_gradient[index] / given.positive_sum[index],
          given.entropy[index] - log(given.positive_sum[index])};
}

}  // namespace
}  // namespace orrery
