// The attention mask of engine/attention_formula/problem.h, for one pair, a tile and a range of keys.
// In an anonymous namespace, as formula.h.
#pragma once

#include <cstdint>
#include <limits>

#include "engine/attention_formula/problem.h"
#include "engine/math/minimum.h"

namespace orrery {
namespace {

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

}  // namespace
}  // namespace orrery
