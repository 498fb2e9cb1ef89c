// Which keys a query sees, and how much of them: a band around its place, the length of its sequence, its document, and
// the ramp at the end of its span.
//
//   m_ij = clip((R + z_i - |x|) / R, 0, 1),  x = i + query_offset - j      with a span; else 1
//   m_ij = 0                                                               for every key that is not seen
#pragma once

#include "engine/attention/problem.h"
#include "engine/attention/tiles.h"

namespace orrery::detail::attend {
namespace {

enum class Cover { none, some, all };  // how much of a tile is seen; all: with m = 1

// What a block of queries sees.
struct Visibility {
  Band band;        // of key - query: beyond it nobody sees anything
  int64_t own_key;  // key - query that attend_to_self = false masks; far_away if none is
  int64_t whole;    // up to this distance from its place every query of the block has m = 1
  int64_t place;    // query_offset
  int64_t keys;     // length of the sequence
  const int32_t *query_document_ids, *key_document_ids;
};

template <class A>
Visibility visibility(const Problem<A>& p, int64_t sequence) {
  const AttendOptions& o = p.options;
  const int64_t length = o.key_lengths ? least(p.sizes.keys, greatest(0, o.key_lengths[sequence])) : p.sizes.keys;
  Band band = everything;
  if (o.window > 0) band = {o.query_offset - o.window + 1, o.query_offset + o.window - 1};
  if (o.causal) band.last = o.attend_to_self ? o.query_offset : o.query_offset - 1;
  return {.band = band,
          .own_key = o.attend_to_self || o.causal ? far_away : o.query_offset,
          .whole = far_away,
          .place = o.query_offset,
          .keys = length,
          .query_document_ids = o.query_document_ids ? o.query_document_ids + sequence * p.sizes.queries : nullptr,
          .key_document_ids = o.key_document_ids ? o.key_document_ids + sequence * p.sizes.keys : nullptr};
}

// z_i of a block of queries, whose first one has the row `row` of (batch, query_heads, queries).
template <class A>
void load_spans(const Problem<A>& p, int64_t head, int64_t row, int64_t queries, int64_t width, A* spans) {
  for (int64_t i = 0; i < width; ++i)
    spans[i] = p.options.span_per_query ? p.inputs.span[row + least(i, queries - 1)] : p.inputs.span[head];
}

// Narrows what is seen to the longest span of the block: m > 0 where |x| < R + z.  A span that is NaN hides nothing.
template <class A>
void narrow_to_spans(const A* spans, int64_t queries, double ramp, Visibility& see) {
  constexpr double limit = 1 << 30;
  double shortest = limit, longest = -limit;
  for (int64_t i = 0; i < queries; ++i) {
    const double z = spans[i];
    shortest = z >= shortest ? shortest : z >= -limit ? z : -limit;
    longest = z <= longest ? longest : z <= limit ? z : limit;
  }
  const double end = longest + ramp < limit ? longest + ramp : limit;
  const auto floor = [](double x) {
    const auto whole = static_cast<int64_t>(x);
    return static_cast<double>(whole) > x ? whole - 1 : whole;
  };
  const int64_t reach = -floor(-end) - 1;
  see.band = {greatest(see.band.first, see.place - reach), least(see.band.last, see.place + reach)};
  see.whole = floor(shortest);
}

// The keys that a block of queries has to look at.  They begin at whole vectors, so that tiles lie alike in memory.
inline Range visible_keys(const Visibility& see, int64_t query, int64_t queries, Range keys) {
  const int64_t begin = greatest(keys.begin, query + see.band.first);
  return {begin - (begin - keys.begin) % padding, least(least(keys.end, see.keys), query + queries + see.band.last)};
}

inline Range extremes(const int32_t* documents, int64_t n) {
  Range found = {documents[0], documents[0]};
  for (int64_t i = 1; i < n; ++i) {
    found.begin = least(found.begin, documents[i]);
    found.end = greatest(found.end, documents[i]);
  }
  return found;
}

inline Cover cover(const Visibility& see, int64_t query, int64_t queries, int64_t key, int64_t keys) {
  const int64_t nearest = key - (query + queries - 1), farthest = key + keys - 1 - query;  // key - query in the tile
  if (nearest > see.band.last || farthest < see.band.first) return Cover::none;
  const bool in_band = nearest >= see.band.first && farthest <= see.band.last;
  const bool without_own = see.own_key < nearest || see.own_key > farthest;
  const bool off_ramp = greatest(farthest - see.place, see.place - nearest) <= see.whole;
  const bool inside = in_band && without_own && off_ramp;
  if (!see.query_document_ids) return inside ? Cover::all : Cover::some;
  const Range a = extremes(see.query_document_ids + query, queries), b = extremes(see.key_document_ids + key, keys);
  if (a.begin > b.end || b.begin > a.end) return Cover::none;
  return inside && a.begin == a.end && b.begin == b.end ? Cover::all : Cover::some;
}

// The band in the coordinates of a tile: rows are queries, columns are keys.
inline Band tile_band(const Visibility& see, int64_t query, int64_t key) {
  return {see.band.first + query - key, see.band.last + query - key};
}

// body(at, m) with m of the elements from `at` on, for all of a tile (keys x width, lanes are queries).
template <class A, class Body>
void each_share(const Visibility& see, const A* spans, double ramp, int64_t query, int64_t queries, int64_t width,
                int64_t key, int64_t keys, const Body& body) {
  const Band band = tile_band(see, query, key);
  const auto word = [](int64_t x) { return static_cast<Word<A>>(greatest(-(1 << 30), least(1 << 30, x))); };
  const auto length = static_cast<A>(ramp);
  for (int64_t i = 0; i < width; i += lanes<A>) {
    const Mask<A> numbers = lane_numbers<A>();
    const Mask<A> first = numbers + word(band.first + i), last = numbers + word(band.last + i);
    const Mask<A> own = numbers + word(see.own_key + query - key + i),
                  place = numbers + word(see.place + query - key + i);
    Mask<A> document{};
    if (see.query_document_ids)
      for (int64_t lane = 0; lane < least(lanes<A>, queries - i); ++lane)
        document[lane] = see.query_document_ids[query + i + lane];
    for (int64_t j = 0; j < keys; ++j) {
      const Mask<A> at = Mask<A>{} + static_cast<Word<A>>(j);
      Mask<A> seen = (at >= first) & (at <= last) & (at != own);
      if (see.key_document_ids) seen &= document == see.key_document_ids[key + j];
      Vector<A> m = splat(A(1));
      if (spans) {
        const Vector<A> distance = __builtin_convertvector(at > place ? at - place : place - at, Vector<A>);
        m = (load(spans + i) - distance) / length + A(1);
        m = select<A>(m <= A(0), Vector<A>{}, select<A>(m >= A(1), splat(A(1)), m));
      }
      body(j * width + i, select<A>(seen, m, Vector<A>{}));
    }
  }
}

}  // namespace
}  // namespace orrery::detail::attend
