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

#include "engine/attention_formula/problem.h"
#include "engine/math/minimum.h"

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

// ---- attention mask

// Sets the band of j - i: causality, window (0: none; |i + query_offset - j| < window), own key.
inline void set_band(MaskView& mask, bool causal, bool attend_to_self, int64_t window) {
  const int64_t offset = mask.query_offset, reach = window > 0 ? window - 1 : int64_t{2} * MaskView::unbounded;
  const auto bounded = [](int64_t x) {
    return static_cast<int>(maximum(-MaskView::unbounded, minimum(MaskView::unbounded, x)));
  };
  mask.first = bounded(offset - reach);
  mask.last = causal ? bounded(attend_to_self ? offset : offset - 1) : bounded(offset + reach);
  mask.masked = attend_to_self || causal ? MaskView::unbounded : bounded(offset);
}
// offset: j - i, an int or a vector of integers
template <class I>
HOST_DEVICE auto in_band(const MaskView& mask, I offset) {
  return (offset >= mask.first) & (offset <= mask.last) & (offset != mask.masked);
}
HOST_DEVICE inline int length_of(const MaskView& mask, int64_t sequence) {
  return mask.key_lengths ? maximum(0, minimum(mask.keys, mask.key_lengths[sequence])) : mask.keys;
}
HOST_DEVICE inline bool same_document(const MaskView& mask, int64_t sequence, int i, int j) {
  return !mask.query_document_ids ||
         mask.query_document_ids[sequence * mask.queries + i] == mask.key_document_ids[sequence * mask.keys + j];
}
// The range of document ids of adjacent tokens. Groups with disjoint ranges have no visible pair.
struct DocumentRange {
  int32_t lowest = std::numeric_limits<int32_t>::max(), highest = std::numeric_limits<int32_t>::min();  // none yet

  HOST_DEVICE void add(int32_t document) {
    lowest = document < lowest ? document : lowest;
    highest = document > highest ? document : highest;
  }
  HOST_DEVICE bool meets(const DocumentRange& other) const {
    return lowest <= other.highest && other.lowest <= highest;
  }
  HOST_DEVICE bool is_one() const { return lowest == highest; }
};
HOST_DEVICE inline bool in_table(const MaskView& mask, int i, int j) {
  return !mask.bits || (mask.bits[int64_t{i} * mask.words + j / 32] >> j % 32 & 1u);
}
// Returns true if documents and the table let query i attend to key j.
HOST_DEVICE inline bool is_allowed(const MaskView& mask, int64_t sequence, int i, int j) {
  return same_document(mask, sequence, i, j) && in_table(mask, i, j);
}
// Query i and key j must exist; j must be below the length of the sequence.
HOST_DEVICE inline bool is_visible(const MaskView& mask, int64_t sequence, int i, int j) {
  return in_band(mask, j - i) && is_allowed(mask, sequence, i, j);
}

struct Interval {
  int begin, end;
};
// Returns the keys in [lowest, length) that the band leaves to queries [i, i + count).
HOST_DEVICE inline Interval keys_of_queries(const MaskView& mask, int i, int count, int length, int lowest = 0) {
  return {maximum(lowest, i + mask.first), minimum(length, i + count + mask.last)};
}
// Returns the queries that the band leaves to keys [j, j + count).
HOST_DEVICE inline Interval queries_of_keys(const MaskView& mask, int j, int count) {
  return {maximum(0, j - mask.last), minimum(mask.queries, j + count - mask.first)};
}
// Returns how much of a tile the table leaves, without queries and keys that do not exist.
HOST_DEVICE inline Coverage coverage_in_table(const MaskView& mask, int i, int queries, int j, int keys) {
  constexpr int side = MaskView::tile;
  if (!mask.bits) return Coverage::all;
  const int last_query = minimum(i + queries, mask.queries) - 1, last_key = minimum(j + keys, mask.keys) - 1;
  bool some = false, all = true;
  for (int a = i / side; a <= last_query / side; ++a)
    for (int b = j / side; b <= last_key / side; ++b) {
      const auto coverage = static_cast<Coverage>(mask.coverage[int64_t{a} * (mask.words * 32 / side) + b]);
      some = some || coverage != Coverage::none, all = all && coverage == Coverage::all;
    }
  return all ? Coverage::all : some ? Coverage::some : Coverage::none;
}
// Returns how much band and table leave of the tile of queries [i, i + queries), keys [j, j + keys).
HOST_DEVICE inline Coverage coverage_of(const MaskView& mask, int i, int queries, int j, int keys) {
  const int nearest = j - (i + queries - 1), farthest = j + keys - 1 - i;  // j - i in the tile
  if (nearest > mask.last || farthest < mask.first) return Coverage::none;
  const bool inside = nearest >= mask.first && farthest <= mask.last &&
                      (mask.masked < nearest || mask.masked > farthest);
  const Coverage by_table = coverage_in_table(mask, i, queries, j, keys);
  return inside || by_table == Coverage::none ? by_table : Coverage::some;
}
// Returns the number of keys visible to query i, regardless of documents and the table.
HOST_DEVICE inline int count_visible(const MaskView& mask, int64_t sequence, int i, int lowest) {
  const Interval keys = keys_of_queries(mask, i, 1, length_of(mask, sequence), lowest);
  const int own = i + mask.masked;
  return keys.end <= keys.begin ? 0 : keys.end - keys.begin - (own >= keys.begin && own < keys.end ? 1 : 0);
}

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
