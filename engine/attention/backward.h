// Gradients between a group of queries and a group of keys: five products a tile, two that compute the scores and the
// gradients of the weights, three that add to dv, dk and dq; and what the terms of the distance add.
#pragma once

#include "engine/attention/score_gradients.h"

namespace orrery::detail::attention {
namespace {

template <class A>
void load_inner_products(const BackwardBlock<A>& block) {
  const int64_t size = block.p.value_size;
  const Matrix<A> outputs = block.of_queries(block.p.output, size);
  for (int64_t i = 0; i < block.width; ++i) {
    Vector<A> products{};
    for (int64_t c = 0; c < size && i < block.count; c += lanes<A>)
      products += load(block.output_gradients.row(i) + c) * load(outputs.row(i) + c);
    block.inner[i] = sum<A>(products);
  }
}

template <class A>
BackwardBlock<A> prepare(const QueryBlock<A>& block, const Workspace<A>& w) {
  const Problem<A>& p = block.p;
  const int64_t size = p.head_size, value_size = p.value_size;
  const bool span_wanted = w.sums.span || (p.span_per_query && p.gradients.span);
  BackwardBlock<A> b{block};
  b.queries = block.of_queries(p.query, size);
  b.output_gradients = block.of_queries(p.output_gradient, value_size);
  b.finite_queries = finite(b.queries, b.count, size);
  b.finite_output_gradients = finite(b.output_gradients, b.count, value_size);
  b.statistics = p.statistics_gradients.sum_gradient || p.statistics_gradients.entropy_gradient;
  b.log_sums = w.rows[0], b.inner = w.rows[1];
  b.sum_gradients = w.rows[2], b.factors = w.rows[3], b.offsets = w.rows[4];
  b.span_gradients = span_wanted ? w.span_gradients : nullptr;
  pack_queries(block, w.query_columns);
  pack_columns(b.output_gradients, b.count, value_size, A(1), b.width, w.gradient_columns);
  if (b.statistics) load_statistics(b);
  for (int64_t i = 0; i < b.width && span_wanted; ++i) b.span_gradients[i] = 0;
  if (b.softmax()) load_log_sums(block, b.log_sums), load_inner_products(b);
  return b;
}

template <class A>
void add_gradients(const BackwardBlock<A>& block, const Keys& keys, const Workspace<A>& w) {
  const Problem<A>& p = block.p;
  const int64_t size = p.head_size, value_size = p.value_size;
  const Band band = band_of(block, keys);
  const bool all = keys.cover == Cover::all;
  const bool finite_queries = all || block.finite_queries;
  const Update<A> plain = {.factor = 1, .add = true}, scaled = {p.scale, true};
  if (const Tokens<A> dv = keys.slots ? p.gradients.slot_value : p.gradients.value; dv.data)
    *w.work += add_product<A>(all || block.finite_output_gradients, keys.count, value_size, block.count,
                              {w.scores, block.width, 1}, block.output_gradients, rows_of(block, keys, dv, value_size),
                              plain, mirrored(band));
  if (const Tokens<A> dk = keys.slots ? p.gradients.slot_key : p.gradients.key; dk.data)
    *w.work += add_product<A>(finite_queries, keys.count, size, block.count, {w.score_gradients, block.width, 1},
                              block.queries, rows_of(block, keys, dk, size), scaled, mirrored(band));
  Matrix<A> dq = {nullptr, 0};
  if (p.gradients.query.data) {
    dq = block.of_queries(p.gradients.query, size);
    const Matrix<const A> rows = key_rows(block, keys);
    *w.work += add_product<A>(all || finite(rows, keys.count, size), block.count, size, keys.count,
                              {w.score_gradients, 1, block.width}, rows, dq, scaled, band);
  }
  if (!keys.slots && p.distances > 0) add_distance_gradients(block, keys, w.score_gradients, dq, w);
}

// dz = sum dm / R
template <class A>
void write_span_gradients(const BackwardBlock<A>& block, const Workspace<A>& w) {
  for (int64_t i = 0; i < block.count && block.span_gradients; ++i)
    (w.sums.span ? w.sums.span[block.head] : block.p.gradients.span[block.place() + i]) +=
        block.span_gradients[i] / block.p.ramp;
}

// The rows of tokens [range) of one head become zero.
template <class A>
void clear(Tokens<A> tokens, int64_t first, Range range, int64_t head, int64_t size) {
  if (tokens.data)
    fill_rows(QueryBlock<A>::rows(tokens, first + range.begin, head, size), range.end - range.begin, size);
}

template <class A>
void clear_queries(const Problem<A>& p, int64_t sequence, int64_t head, Range queries) {
  clear(p.gradients.query, sequence * p.queries, queries, head, p.head_size);
  if (!p.gradients.span || !p.span_per_query) return;
  A* const row = p.gradients.span + (sequence * p.query_heads + head) * p.queries;
  for (int64_t i = queries.begin; i < queries.end; ++i) row[i] = 0;
}

template <class A>
void clear_keys(const Problem<A>& p, const TilePair& m) {
  const AttentionGradients<A>& d = p.gradients;
  const int64_t first = m.slots ? 0 : m.sequence * p.keys;
  clear(m.slots ? d.slot_key : d.key, first, m.keys, m.key_head, p.head_size);
  clear(m.slots ? d.slot_value : d.value, first, m.keys, m.key_head, p.value_size);
}

template <class A>
void backward(const Problem<A>& p, const TilePair& m, const Workspace<A>& w) {
  const int64_t group = p.query_heads / p.key_heads;
  if (m.clear_keys) clear_keys(p, m);
  for (int64_t head = m.key_head * group; head < (m.key_head + 1) * group; ++head) {
    if (m.clear_queries) clear_queries(p, m.sequence, head, m.queries);
    for (int64_t query = m.queries.begin; query < m.queries.end; query += query_block) {
      const QueryBlock<A> plain = query_block_of(p, m.sequence, head, query, m.queries.end, w);
      const Range keys = m.slots ? m.keys : keys_of_block(plain.mask, plain.first, plain.count, m.keys);
      if (keys.begin >= keys.end) continue;
      const BackwardBlock<A> block = prepare(plain, w);
      const auto tile = [&](const Keys& keys) {
        if (differentiate(block, keys, w)) add_gradients(block, keys, w);
      };
      if (m.slots)
        each_tile_of_slots(m.keys, tile);
      else
        each_tile(block, m.keys, tile);
      write_span_gradients(block, w);
    }
  }
}

}  // namespace
}  // namespace orrery::detail::attention
