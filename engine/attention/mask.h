// The mask of a block of queries, tile by tile: engine/attention_formula/formula.h on vectors.
#pragma once

#include "engine/attention/problem.h"
#include "engine/attention/tiles.h"

namespace orrery::detail::attention {
namespace {

// The mask of one sequence, narrowed to the longest span of a block of queries.
struct BlockMask : MaskView {
  int length;                                   // keys of the sequence
  int64_t full_distance = MaskView::unbounded;  // up to this distance every query of the block has r > 1
};

template <class A>
BlockMask block_mask(const Problem<A>& p, int64_t sequence) {
  BlockMask mask{p, length_of(p, sequence)};
  if (!mask.query_document_ids) return mask;
  mask.query_document_ids += sequence * p.queries, mask.key_document_ids += sequence * p.keys;
  return mask;
}

// Loads z_i of a block whose first query has index `row` in (batch, query_heads, queries).
template <class A>
void load_spans(const Problem<A>& p, int64_t head, int64_t row, int64_t queries, int64_t width, A* spans) {
  for (int64_t i = 0; i < width; ++i) spans[i] = p.span[p.span_per_query ? row + minimum(i, queries - 1) : head];
}

// Narrows the mask to the longest span of the block: r >= 0 where |x| <= R + z. A NaN span masks
// nothing. r is rounded to A, so keys within its rounding of an end of the ramp count as on it.
template <class A>
void narrow_to_spans(const A* spans, int64_t queries, double ramp, BlockMask& mask) {
  constexpr double limit = MaskView::unbounded;
  double shortest = limit, longest = -limit;
  for (int64_t i = 0; i < queries; ++i) {
    const double z = spans[i];
    shortest = z >= shortest ? shortest : z >= -limit ? z : -limit;
    longest = z <= longest ? longest : z <= limit ? z : limit;
  }
  const double rounding = ramp * 0x1p-22, end = minimum(longest + ramp + rounding, limit);
  const auto floor = [](double x) {
    const auto whole = static_cast<int64_t>(x);
    return static_cast<double>(whole) > x ? whole - 1 : whole;
  };
  const int64_t reach = maximum(floor(end), -1), offset = mask.query_offset;
  mask.first = static_cast<int>(maximum(mask.first, offset - reach));
  mask.last = static_cast<int>(minimum(mask.last, offset + reach));
  mask.full_distance = -floor(rounding - shortest) - 1;
}

// Returns the keys that the block needs, from a multiple of the vector size on: tiles stay aligned. With a table tiles
// begin at its tiles, so that those that it hides can be skipped.
inline Range keys_of_block(const BlockMask& mask, int64_t query, int64_t queries, Range keys) {
  const Interval found = keys_of_queries(mask, static_cast<int>(query), static_cast<int>(queries), mask.length,
                                         static_cast<int>(keys.begin));
  const int64_t unit = mask.bits ? MaskView::tile : padding;
  return {found.begin - (found.begin - keys.begin) % unit, minimum(keys.end, found.end)};
}

inline DocumentRange range_of(const int32_t* documents, int64_t n) {
  DocumentRange range;
  for (int64_t i = 0; i < n; ++i) range.add(documents[i]);
  return range;
}

// Returns how much of a tile is visible; `all` also means that m = 1, outside the ramp.
inline Coverage tile_coverage(const BlockMask& mask, int64_t query, int64_t queries, int64_t key, int64_t keys) {
  const auto to_int = [](int64_t n) { return static_cast<int>(n); };
  const Coverage by_pairs = coverage_of(mask, to_int(query), to_int(queries), to_int(key), to_int(keys));
  if (by_pairs == Coverage::none) return Coverage::none;
  const int64_t before = query + queries - 1 + mask.query_offset - key,
                after = key + keys - 1 - query - mask.query_offset;
  const bool inside = by_pairs == Coverage::all && maximum(before, after) <= mask.full_distance;
  if (!mask.query_document_ids) return inside ? Coverage::all : Coverage::some;
  const DocumentRange query_documents = range_of(mask.query_document_ids + query, queries),
                      key_documents = range_of(mask.key_document_ids + key, keys);
  if (!query_documents.meets(key_documents)) return Coverage::none;
  return inside && query_documents.is_one() && key_documents.is_one() ? Coverage::all : Coverage::some;
}

// Returns the band in the coordinates of a tile: rows are queries, columns are keys.
inline Band tile_band(const BlockMask& mask, int64_t query, int64_t key) {
  return {mask.first + query - key, mask.last + query - key};
}

// Calls body(index, r) with ramp values r for each vector of a tile (keys x width; lanes: queries).
template <class A, class Body>
void for_each_score(const BlockMask& mask, const A* spans, A ramp, int64_t query, int64_t queries, int64_t width,
                    int64_t key, int64_t keys, const Body& body) {
  const auto word = [](int64_t x) { return static_cast<Word<A>>(x); };
  for (int64_t i = 0; i < width; i += lanes<A>) {
    const Mask<A> first = word(key - query - i) - lane_numbers<A>();  // key - query, for key 0 of the tile
    Mask<A> document{};
    if (mask.query_document_ids)
      for (int64_t lane = 0; lane < minimum(lanes<A>, queries - i); ++lane)
        document[lane] = mask.query_document_ids[query + i + lane];
    Mask<A> bits{};  // those of 32 keys, for each lane's query
    for (int64_t j = 0; j < keys; ++j) {
      const Mask<A> offset = first + word(j);
      Mask<A> visible = in_band(mask, offset);
      if (mask.key_document_ids) visible &= document == mask.key_document_ids[key + j];
      if (mask.bits) {
        const int64_t bit = (key + j) % 32;
        if (j == 0 || bit == 0)
          for (int64_t lane = 0; lane < minimum(lanes<A>, queries - i); ++lane)
            bits[lane] = word(mask.bits[(query + i + lane) * mask.words + (key + j) / 32]);
        visible &= (bits >> word(bit) & word(1)) != word(0);
      }
      Vector<A> r = splat(outside_ramp<A>);
      if (spans) {
        const Mask<A> x = mask.query_offset - offset, distance = x > 0 ? x : -x;
        r = ramp_value<Vector<A>>(load(spans + i), __builtin_convertvector(distance, Vector<A>), ramp);
      }
      body(j * width + i, select<A>(visible, r, splat(masked_ramp<A>)));
    }
  }
}

}  // namespace
}  // namespace orrery::detail::attention
