// Gradients between a group of queries and a group of keys: five products a tile, two that compute the scores and the
// gradients of the weights, three that add to dv, dk and dq.
#pragma once

#include "engine/attend/kernels.h"

namespace orrery::detail::attend {
namespace {

// A block of queries in backward: what is computed once for all its tiles.
template <class A>
struct BackwardBlock : QueryBlock<A> {
  Matrix<const A> queries, output_gradients;
  bool finite_queries, finite_output_gradients;
  A *log_sums, *inner;  // softmax: L_i and scale <do_i, o_i>
};

// Packs scale do instead of do: then the gradients of the scores come out with the factor that dq and dk need.
template <class A>
BackwardBlock<A> prepare(const QueryBlock<A>& block, const Workspace<A>& w) {
  const Problem<A>& p = block.p;
  const int64_t size = p.sizes.head_size, value_size = p.sizes.value_size;
  const A scale = static_cast<A>(p.options.scale);
  BackwardBlock<A> b{block,
                     block.of_queries(p.inputs.query, size),
                     block.of_queries(p.output_gradient, value_size),
                     true,
                     true,
                     w.rows[0],
                     w.rows[1]};
  b.finite_queries = finite(b.queries, b.count, size);
  b.finite_output_gradients = finite(b.output_gradients, b.count, value_size);
  pack_columns(b.queries, b.count, size, scale, b.width, w.query_columns);
  pack_columns(b.output_gradients, b.count, value_size, scale, b.width, w.gradient_columns);
  if (!b.softmax()) return b;
  load_log_sums(block, b.log_sums);
  const Matrix<const A> outputs = block.of_queries(p.kept_output, value_size);
  for (int64_t i = 0; i < b.width; ++i) {
    Vector<A> products{};
    for (int64_t c = 0; c < value_size && i < b.count; c += lanes<A>)
      products += load(b.output_gradients.row(i) + c) * load(outputs.row(i) + c);
    b.inner[i] = scale * sum<A>(products);
  }
  return b;
}

// Scores become weights, the gradients of the weights those of the scores: ds = w (g - <do, o>), 0 where hidden.
template <class A>
void softmax_pullback(const BackwardBlock<A>& block, int64_t keys, A* scores, A* gradients) {
  for (int64_t i = 0; i < block.width; i += lanes<A>) {
    const Vector<A> log_sum = load(block.log_sums + i), inner = load(block.inner + i);
    for (int64_t j = 0; j < keys; ++j) {
      A *const s = scores + j * block.width + i, *const g = gradients + j * block.width + i;
      const Mask<A> hidden = load(s) == -infinity<A>;
      const Vector<A> w = select<A>(hidden, Vector<A>{}, exponential<A>(load(s) - log_sum));
      store(g, select<A>(hidden, Vector<A>{}, w * (load(g) - inner)));
      store(s, w);
    }
  }
}

// Weights and scale times the gradients of the scores of one tile, both (keys x width).  False: all of them are zero.
template <class A>
bool differentiate(const BackwardBlock<A>& block, const Keys& keys, const Workspace<A>& w) {
  const Problem<A>& p = block.p;
  const int64_t n = keys.count * block.width;
  compute_scores(block, keys, w.query_columns, w.scores);
  if (vanishes(block, keys, w.scores)) return false;
  transposed_product(block, keys, p.inputs.value, p.sizes.value_size, w.gradient_columns, w.score_gradients);
  if (p.dropout_factors) {
    p.dropout_factors(p, block.place(), block.width, keys.first, keys.count, w.factors);
    multiply(w.score_gradients, w.factors, n);
  }
  if (block.softmax()) {
    softmax_pullback(block, keys.count, w.scores, w.score_gradients);
  } else {
    p.weighting.pullback(p.weighting.context, w.scores, w.score_gradients, w.scores, w.score_gradients, n);
    hide(block, keys, w.scores, A(0)), hide(block, keys, w.score_gradients, A(0));
  }
  if (p.dropout_factors) multiply(w.scores, w.factors, n);
  return true;
}

// C += A B over what the tile sees
template <class A>
void add_product(const Keys& keys, int64_t m, int64_t n, int64_t depth, Factor<A> a, Matrix<const A> b, bool finite_b,
                 Matrix<A> c, Band inner) {
  if (keys.cover == Cover::all || finite_b)
    product<A>(m, n, depth, a, b, c, true, inner);
  else
    selective_product<A>(m, n, depth, a, b, c, true);
}

template <class A>
void add_gradients(const BackwardBlock<A>& block, const Keys& keys, const Workspace<A>& w) {
  const Problem<A>& p = block.p;
  const int64_t size = p.sizes.head_size, value_size = p.sizes.value_size;
  const Band band = band_of(block, keys);
  if (p.gradients.value.data)
    add_product(keys, keys.count, value_size, block.count, {w.scores, block.width, 1}, block.output_gradients,
                block.finite_output_gradients, block.of_keys(p.gradients.value, keys.first, value_size),
                mirrored(band));
  if (p.gradients.key.data)
    add_product(keys, keys.count, size, block.count, {w.score_gradients, block.width, 1}, block.queries,
                block.finite_queries, block.of_keys(p.gradients.key, keys.first, size), mirrored(band));
  if (p.gradients.query.data) {
    const Matrix<const A> rows = block.of_keys(p.inputs.key, keys.first, size);
    const bool finite_keys = keys.cover == Cover::all || finite(rows, keys.count, size);
    add_product(keys, block.count, size, keys.count, {w.score_gradients, 1, block.width}, rows, finite_keys,
                block.of_queries(p.gradients.query, size), band);
  }
}

// The rows of tokens [range) of one head become zero.
template <class A>
void clear(Tokens<A> tokens, int64_t first, Range range, int64_t head, int64_t size) {
  if (tokens.data)
    fill_rows(QueryBlock<A>::rows(tokens, first + range.begin, head, size), range.end - range.begin, size);
}

template <class A>
void backward(const Problem<A>& p, int64_t sequence, int64_t key_head, Range queries, Range keys, bool first,
              const Workspace<A>& w) {
  const int64_t group = p.sizes.query_heads / p.sizes.key_heads;
  const Range heads = {key_head * group, (key_head + 1) * group};
  if (first) {
    for (int64_t head = heads.begin; head < heads.end; ++head)
      clear(p.gradients.query, sequence * p.sizes.queries, queries, head, p.sizes.head_size);
    clear(p.gradients.key, sequence * p.sizes.keys, keys, key_head, p.sizes.head_size);
    clear(p.gradients.value, sequence * p.sizes.keys, keys, key_head, p.sizes.value_size);
  }
  for (int64_t head = heads.begin; head < heads.end; ++head)
    for (int64_t query = queries.begin; query < queries.end; query += query_block) {
      const QueryBlock<A> plain = query_block_of(p, sequence, head, query, queries.end);
      const Range range = visible_keys(plain.see, plain.first, plain.count, keys);
      if (range.begin >= range.end) continue;
      const BackwardBlock<A> block = prepare(plain, w);
      for (int64_t key = range.begin; key < range.end; key += key_block) {
        const Keys tile = keys_of(plain, key, range.end);
        if (tile.cover != Cover::none && differentiate(block, tile, w)) add_gradients(block, tile, w);
      }
    }
}

}  // namespace
}  // namespace orrery::detail::attend
