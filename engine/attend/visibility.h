// Which keys a query sees: a band around its place, the length of its sequence, and its document.
#pragma once

#include "engine/attend/problem.h"
#include "engine/attend/tiles.h"

namespace orrery::detail::attend {
namespace {

enum class Cover { none, some, all };  // how much of a tile is seen

struct Visibility {
  Band band;     // of key - query
  int64_t keys;  // length of the sequence
  const int32_t *query_documents, *key_documents;
};

template <class A>
Visibility visibility(const Problem<A>& p, int64_t sequence) {
  const AttendOptions& o = p.options;
  const int64_t length = o.key_lengths ? least(p.sizes.keys, greatest(0, o.key_lengths[sequence])) : p.sizes.keys;
  Band band = everything;
  if (o.window > 0) band = {o.query_offset - o.window + 1, o.query_offset + o.window - 1};
  if (o.causal) band.last = o.query_offset;
  return {band, length, o.query_documents ? o.query_documents + sequence * p.sizes.queries : nullptr,
          o.key_documents ? o.key_documents + sequence * p.sizes.keys : nullptr};
}

// The keys that a block of queries has to look at.
inline Range visible_keys(const Visibility& see, int64_t query, int64_t queries, Range keys) {
  const int64_t begin = greatest(keys.begin, query + see.band.first);
  return {begin - (begin - keys.begin) % key_block, least(least(keys.end, see.keys), query + queries + see.band.last)};
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
  const bool inside = nearest >= see.band.first && farthest <= see.band.last;
  if (!see.query_documents) return inside ? Cover::all : Cover::some;
  const Range a = extremes(see.query_documents + query, queries), b = extremes(see.key_documents + key, keys);
  if (a.begin > b.end || b.begin > a.end) return Cover::none;
  return inside && a.begin == a.end && b.begin == b.end ? Cover::all : Cover::some;
}

// The band in the coordinates of a tile: rows are queries, columns are keys.
inline Band tile_band(const Visibility& see, int64_t query, int64_t key) {
  return {see.band.first + query - key, see.band.last + query - key};
}

// tile (keys x width, lanes are queries): what is not seen becomes `hidden`.
template <class A>
void hide(const Visibility& see, int64_t query, int64_t queries, int64_t width, int64_t key, int64_t keys, A* tile,
          A hidden) {
  const Band band = tile_band(see, query, key);
  const auto word = [](int64_t x) { return static_cast<Word<A>>(greatest(-(1 << 30), least(1 << 30, x))); };
  for (int64_t i = 0; i < width; i += lanes<A>) {
    const Mask<A> numbers = lane_numbers<A>();
    const Mask<A> first = numbers + word(band.first + i), last = numbers + word(band.last + i);
    Mask<A> document{};
    if (see.query_documents)
      for (int64_t lane = 0; lane < least(lanes<A>, queries - i); ++lane)
        document[lane] = see.query_documents[query + i + lane];
    for (int64_t j = 0; j < keys; ++j) {
      const Mask<A> at = Mask<A>{} + static_cast<Word<A>>(j);
      Mask<A> seen = (at >= first) & (at <= last);
      if (see.key_documents) seen &= document == see.key_documents[key + j];
      A* const p = tile + j * width + i;
      store(p, select<A>(seen, load(p), splat(hidden)));
    }
  }
}

}  // namespace
}  // namespace orrery::detail::attend
