// What forward, backward and the statistics share: a block of queries of one head, and the scores of a tile.
#pragma once

#include "engine/attend/visibility.h"

namespace orrery::detail::attend {
namespace {

template <class A>
constexpr A infinity = A(__builtin_inf());

template <class A>
struct QueryBlock {
  const Problem<A>& p;
  Visibility see;
  int64_t sequence, head, key_head;
  int64_t first, count;  // queries
  int64_t width;         // count rounded up to whole vectors

  bool softmax() const { return p.weighting.values == nullptr; }
  template <class B>  // from token `token` on, of tokens (batch, n, heads, size)
  static Matrix<B> rows(Tokens<B> tokens, int64_t token, int64_t head, int64_t size) {
    return {tokens.data + token * tokens.stride + head * size, tokens.stride};
  }
  template <class B>
  Matrix<B> of_queries(Tokens<B> tokens, int64_t size) const {
    return rows(tokens, sequence * p.sizes.queries + first, head, size);
  }
  template <class B>
  Matrix<B> of_keys(Tokens<B> tokens, int64_t key, int64_t size) const {
    return rows(tokens, sequence * p.sizes.keys + key, key_head, size);
  }
  // of the first query in (batch, heads, queries)
  int64_t place() const { return (sequence * p.sizes.query_heads + head) * p.sizes.queries + first; }
};

template <class A>
QueryBlock<A> query_block_of(const Problem<A>& p, int64_t sequence, int64_t head, int64_t first, int64_t end) {
  const int64_t count = least(query_block, end - first);
  const int64_t key_head = head / (p.sizes.query_heads / p.sizes.key_heads);
  return {p, visibility(p, sequence), sequence, head, key_head, first, count, round_up(count, lanes<A>)};
}

// A tile: the block of queries against the keys [first, first + count).
struct Keys {
  int64_t first, count;
  Cover cover;
};

template <class A>
Keys keys_of(const QueryBlock<A>& block, int64_t first, int64_t end) {
  const int64_t count = least(key_block, end - first);
  return {first, count, cover(block.see, block.first, block.count, first, count)};
}

template <class A>
Band band_of(const QueryBlock<A>& block, const Keys& keys) {
  return keys.cover == Cover::all ? everything : tile_band(block.see, block.first, keys.first);
}

template <class A>
void hide(const QueryBlock<A>& block, const Keys& keys, A* tile, A hidden) {
  if (keys.cover == Cover::some)
    hide(block.see, block.first, block.count, block.width, keys.first, keys.count, tile, hidden);
}

// tile (keys x width) = B C with the rows of B at the keys and C a transposed copy; hidden elements may be left
// unwritten.
template <class A>
void transposed_product(const QueryBlock<A>& block, const Keys& keys, Tokens<const A> tokens, int64_t size,
                        const A* columns, A* tile) {
  const Matrix<const A> rows = block.of_keys(tokens, keys.first, size);
  product<A>(keys.count, block.width, size, {rows.data, rows.stride, 1}, {columns, block.width}, {tile, block.width},
             false, everything, mirrored(band_of(block, keys)));
}

// Scores of a tile.  Hidden ones become minus infinity for softmax, whose weight is then exactly 0, and 0 otherwise.
template <class A>
void compute_scores(const QueryBlock<A>& block, const Keys& keys, const A* query_columns, A* scores) {
  transposed_product(block, keys, block.p.inputs.key, block.p.sizes.head_size, query_columns, scores);
  hide(block, keys, scores, block.softmax() ? -infinity<A> : A(0));
}

// Whether no score is positive (nor NaN).
template <class A>
bool none_positive(const A* scores, int64_t n) {
  Mask<A> found{};
  for (int64_t i = 0; i < n; i += lanes<A>) found |= ~(load(scores + i) <= A(0));
  return !any<A>(found);
}

template <class A>
bool vanishes(const QueryBlock<A>& block, const Keys& keys, const A* scores) {
  return block.p.weighting.zero_below_zero && none_positive(scores, keys.count * block.width);
}

template <class A>
void multiply(A* x, const A* y, int64_t n) {
  for (int64_t i = 0; i < n; i += lanes<A>) store(x + i, load(x + i) * load(y + i));
}

template <class A>
void pack_queries(const QueryBlock<A>& block, A* query_columns) {
  pack_columns<A>(block.of_queries(block.p.inputs.query, block.p.sizes.head_size), block.count, block.p.sizes.head_size,
                  static_cast<A>(block.p.options.scale), block.width, query_columns);
}

// log_sum of the queries, 0 for those that see nothing: then exp(minus infinity - 0) is 0 rather than NaN.
template <class A>
void load_log_sums(const QueryBlock<A>& block, A* log_sums) {
  const A* const kept = block.p.kept_log_sum + block.place();
  for (int64_t i = 0; i < block.width; ++i) log_sums[i] = i < block.count && kept[i] != -infinity<A> ? kept[i] : A(0);
}

}  // namespace
}  // namespace orrery::detail::attend
