// Attention on a GPU for every weighting, without tensor cores: f32, f64, and bf16 with f32
// arithmetic. engine/attention_formula/problem.h defines formulas and options. bf16 of some
// weightings uses tensor cores (tensor_core.cuh). Launches work on tiles of scores (tile.cuh);
// nothing of size queries x keys is stored.
//
//   forward             a block has a tile of queries and loops over its visible keys, then over the slots.
//                       Registers hold the output, and for softmax the largest score and the sum so far.
//   statistics          the same loop with the final weights; registers hold the sums.
//   backward, queries   the same loop; registers hold dq and dz.                              backward.cuh
//   backward, keys      a block has a tile of keys (or of slots) and loops over the queries that attend to it, of
//                       all its heads (and for slots all sequences); registers hold dk and dv.
//   backward, distances a block has `side` consecutive distances of a head and loops over their diagonals of
//                       scores, over all sequences; registers hold db and dp.
//
// So one block sums each gradient, in an order that depends on the sizes alone: no atomics,
// reproducible bits. The cost: scores are computed once in forward, and in backward once for
// queries, once for keys, and twice more for gradients of relative-position terms.
//
// One vote skips tiles that are fully masked, a second vote tiles whose weights are all zero.
#pragma once

#include <algorithm>

#include "cuda/attention/backward.cuh"
#include "cuda/attention/tensor_core.cuh"

namespace orrery::cuda {

// ---- forward

namespace {  // internal, because OnlineSoftmax is
template <class A>
struct TileSoftmax {
  static constexpr int each = AttentionTile<A>::each;
  OnlineSoftmax<A> rows[each];  // sum: of this thread's keys only

  // Turns scores into weights; rescales `output`, the output so far, to the new largest score.
  __device__ void weigh(const typename AttentionTile<A>::Registers& ramp_values,
                        typename AttentionTile<A>::Registers& s, typename AttentionTile<A>::Result& output) {
#pragma unroll
    for (int a = 0; a < each; ++a) {
      A top = rows[a].largest;
#pragma unroll
      for (int b = 0; b < each; ++b)
        if (!is_masked(ramp_values[a][b], false) && s[a][b] > top) top = s[a][b];
      const A shrink = rows[a].update_max(maximum_of_row(top), Exponential{});
#pragma unroll
      for (int b = 0; b < each; ++b) s[a][b] = rows[a].weigh(mask_weight(ramp_values[a][b]), s[a][b], Exponential{});
#pragma unroll
      for (int e = 0; e < AttentionTile<A>::columns; ++e) output[a][e] *= shrink;
    }
  }
};
}  // namespace

// Returns m F(s).
template <class A, class P>
__device__ void pointwise_weights(const P& p, const QueryTile& q,
                                  const typename AttentionTile<A>::Registers& ramp_values,
                                  typename AttentionTile<A>::Registers& s) {
  const auto& f = function_of<A>(p, q);
#pragma unroll
  for (int a = 0; a < AttentionTile<A>::each; ++a)
#pragma unroll
    for (int b = 0; b < AttentionTile<A>::each; ++b)
      s[a][b] = times_mask_weight(mask_weight(ramp_values[a][b]), f.value(s[a][b]));
}

template <class A, class P>
__global__ void __launch_bounds__(attention_threads, 1) attention_forward_kernel(const __grid_constant__ P p) {
  using Tile = AttentionTile<A>;
  Tile& tile = shared_memory<Tile>();
  wait_for_earlier();
  const QueryWork<A> work(p, p.value_size);
  const QueryTile q = work.q;
  TileSoftmax<A> softmax;
  typename Tile::Result output = {};
  const KeyTiles tiles(p, q, Tile::side, Tile::side);
  int vote = 0;
  for (int n = 0; n < tiles.count; ++n) {
    const KeyTile keys = tiles[n];
    typename Tile::Registers ramp_values, w;
    if (!any_of_block(tile, vote, compute_ramp_values<A>(p, q, keys, false, ramp_values))) continue;
    compute_scores(tile, p, q, keys, ramp_values, false, w);
    if constexpr (decltype(P::weights)::softmax)
      softmax.weigh(ramp_values, w, output);
    else
      pointwise_weights<A>(p, q, ramp_values, w);
    const RandomKey rng_key = p.dropout.kept > 0 ? p.dropout.rng_key.load() : RandomKey{};
    bool some = false;
    each_element<A>(q, keys, [&](int a, int b, int i, int j) {
      if (p.dropout.kept > 0 && !is_masked(ramp_values[a][b], false))
        w[a][b] *= dropout_factor<A>(p, rng_key, q, keys, i, j);
      some = some || w[a][b] != 0;
    });
    store_scores<A>(tile.weights, w);
    if (!any_of_block(tile, vote, some)) continue;
    const ReadRows<A> values = rows_of_keys(p, p.value, p.slot_value, q, keys, p.value_size);
    add_weighted_rows(
        tile, work.columns, [&](int row, int k) { return tile.weights[row][k]; },
        [&](int column, int columns) {
          load_panel<A>(tile.right, values, keys.first, keys.end, work.column + column, columns);
        },
        output);
  }

  allow_next();
  A factor[Tile::each];
#pragma unroll
  for (int a = 0; a < Tile::each; ++a) {
    factor[a] = 1;
    if constexpr (decltype(P::weights)::softmax) {
      const A sum = sum_of_row(softmax.rows[a].sum);
      const int i = q.first + tile_row() + 16 * a;
      factor[a] = sum == 0 ? A(0) : 1 / sum;
      if (i < p.queries && work.column == 0 && tile_column() == 0)
        p.log_sum[row_of(p, q) + i] = softmax.rows[a].log_sum(sum, Logarithm{});
    }
  }
  const WriteRows<A> to =
      rows_from(p, p.output, int64_t{q.sequence} * p.queries, int64_t{q.head} * p.value_size + work.column);
  each_result<A>(output, work.columns, [&](int a, int row, int column, A value) {
    if (q.first + row < p.queries) to.set(q.first + row, column, value * factor[a]);
  });
}

// ---- statistics

// Combines the sums of the threads of a row.
template <class A>
__device__ void join(RowSums<A>& row) {
  row.sum = sum_of_row(row.sum), row.positive = sum_of_row(row.positive), row.p_log_p = sum_of_row(row.p_log_p);
  row.visible = sum_of_row(row.visible), row.zeros = sum_of_row(row.zeros), row.largest = maximum_of_row(row.largest);
}

template <class A, class P>
__global__ void __launch_bounds__(attention_threads, 1) attention_statistics_kernel(const __grid_constant__ P p) {
  using Tile = AttentionTile<A>;
  Tile& tile = shared_memory<Tile>();
  wait_for_earlier();
  const QueryTile q = QueryWork<A>(p, 1).q;
  [[maybe_unused]] const auto& f = function_of<A>(p, q);
  const KeyTiles tiles(p, q, Tile::side, Tile::side);
  RowSums<A> sums[Tile::each];
  A log_sum[Tile::each];
#pragma unroll
  for (int a = 0; a < Tile::each; ++a) {
    const int i = q.first + tile_row() + 16 * a;
    log_sum[a] = decltype(P::weights)::softmax && i < p.queries ? p.log_sum[row_of(p, q) + i] : A(0);
  }
  int vote = 0;
  for (int n = 0; n < tiles.count; ++n) {
    const KeyTile keys = tiles[n];
    typename Tile::Registers ramp_values, s;
    if (!any_of_block(tile, vote, compute_ramp_values<A>(p, q, keys, false, ramp_values))) continue;
    compute_scores(tile, p, q, keys, ramp_values, false, s);
    each_element<A>(q, keys, [&](int a, int b, int, int) {
      if (!is_masked(ramp_values[a][b], false))
        sums[a].add(mask_weight(ramp_values[a][b]) * unmasked_weight(p, f, s[a][b], log_sum[a]), A(1), Logarithm{});
    });
  }
  allow_next();
#pragma unroll
  for (int a = 0; a < Tile::each; ++a) {
    const int i = q.first + tile_row() + 16 * a;
    join(sums[a]);
    if (i < p.queries && tile_column() == 0) write_statistics(p.statistics, row_of(p, q) + i, sums[a], Logarithm{});
  }
}

// ---- launches

template <class A>
Launch attention_launch(const char* name, int64_t blocks, int line = __builtin_LINE()) {
  return {name, static_cast<unsigned>(blocks), attention_threads, sizeof(AttentionTile<A>), __builtin_FILE(), line};
}
template <class A>
int64_t attention_tiles(int64_t tokens) {
  return (tokens + AttentionTile<A>::side - 1) / AttentionTile<A>::side;
}
template <class A>
int64_t attention_chunks(int64_t columns) {
  return (columns + AttentionTile<A>::chunk - 1) / AttentionTile<A>::chunk;
}

// ---- entry points

template <class A, class Weights>
void attention_forward(const AttentionProblem<A>& problem, const Weights& weights) {
  using P = WeightedProblem<A, Weights>;
  const int64_t heads = int64_t{problem.batch} * problem.query_heads;
  const int64_t blocks = heads * attention_tiles<A>(problem.queries) * attention_chunks<A>(problem.value_size);
  if (blocks == 0) return;
  const P p{problem, weights};
  if constexpr (tensor_core_weighting<A, Weights>)
    if (fits_tensor_cores(problem)) return tensor_core_attention_forward(p);
  launch(attention_launch<A>("attention: forward", blocks), attention_forward_kernel<A, P>, p);
}

template <class A, class Weights>
void attention_statistics(const AttentionProblem<A>& problem, const Weights& weights) {
  using P = WeightedProblem<A, Weights>;
  const int64_t blocks = int64_t{problem.batch} * problem.query_heads * attention_tiles<A>(problem.queries);
  if (blocks > 0)
    launch(attention_launch<A>("attention: statistics", blocks), attention_statistics_kernel<A, P>,
           P{problem, weights});
}

template <class A, class P>
void backward_of_queries(const P& p, A* spans, A* parameters) {
  if (!p.gradients.query.data && !spans && !parameters) return;
  const int64_t chunks = p.gradients.query.data ? attention_chunks<A>(p.head_size) : 1;
  const int64_t blocks = int64_t{p.batch} * p.query_heads * attention_tiles<A>(p.queries) * chunks;
  if (blocks > 0)
    launch(attention_launch<A>("attention: backward of queries", blocks), attention_backward_queries_kernel<A, P>, p,
           spans, parameters);
}
// `tiles`: number of tiles over all heads that have separate gradients
template <class A, class P>
void backward_of_keys(const P& p, bool slots, int64_t tiles) {
  const AttentionGradients<A>& d = p.gradients;
  const int64_t blocks = tiles * attention_chunks<A>(maximum(p.head_size, p.value_size));
  if (blocks > 0 && (slots ? d.slot_key.data || d.slot_value.data : d.key.data || d.value.data))
    launch(attention_launch<A>("attention: backward of keys", blocks), attention_backward_keys_kernel<A, P>, p, slots);
}
template <class A, class P>
void backward_of_distances(const P& p, A* embedding_partials) {
  const int64_t chunks = embedding_partials ? attention_chunks<A>(p.head_size) : 1;
  launch(
      attention_launch<A>("attention: backward of distances", p.query_heads * attention_tiles<A>(p.distances) * chunks),
      attention_backward_distances_kernel<A, P>, p, embedding_partials);
  if (embedding_partials)
    launch({"attention: relative embeddings", static_cast<unsigned>(p.distances), attention_threads},
           attention_add_heads_kernel<A>, static_cast<const AttentionProblem<A>&>(p), embedding_partials);
}

template <class A, class Weights>
void attention_backward(const AttentionProblem<A>& problem, const Weights& weights) {
  using P = WeightedProblem<A, Weights>;
  if constexpr (tensor_core_weighting<A, Weights>)
    if (fits_tensor_cores(problem) && (problem.gradients.query.data || !problem.gradients.parameters))
      return tensor_core_attention_backward(P{problem, weights});
  // One scratch buffer: c per query for softmax, dz per query if spans are per head, dp of distances
  // per head, dp of F per query.
  const AttentionGradients<A>& d = problem.gradients;
  const bool spans_of_heads = d.span && !problem.span_per_query;
  const int64_t rows = problem.rows(), inner = Weights::softmax ? rows : 0, spans = spans_of_heads ? rows : 0;
  const int64_t partials =
      d.relative_embedding.data ? int64_t{problem.query_heads} * problem.distances * problem.head_size : 0;
  const int64_t parameters = d.parameters ? rows * Weights::parameters : 0;
  const Workspace workspace((inner + spans + partials + parameters) * static_cast<int64_t>(sizeof(A)));
  A *const inner_products = static_cast<A*>(workspace.data()), *const span_gradients = inner_products + inner;
  const P p{problem, weights, inner_products};

  if (inner > 0)
    launch({"attention: inner products", attention_inner_blocks(rows), attention_threads}, attention_inner_kernel<A>,
           problem, rows, inner_products);
  A* const parameter_gradients = parameters > 0 ? span_gradients + spans + partials : nullptr;
  backward_of_queries<A>(p, spans_of_heads ? span_gradients : d.span, parameter_gradients);
  const auto add_rows = [&](const char* name, const A* per_query, int arrays, A* to) {
    add_rows_of_heads(name, problem, per_query, problem.queries, arrays, to);
  };
  if (spans_of_heads) add_rows("attention: spans", span_gradients, 1, d.span);
  if (parameters > 0) add_rows("attention: parameters", parameter_gradients, Weights::parameters, d.parameters);
  backward_of_keys<A>(p, false, int64_t{p.batch} * p.kv_heads * attention_tiles<A>(p.keys));
  backward_of_keys<A>(p, true, p.kv_heads * attention_tiles<A>(p.slots));
  if (d.relative_bias || d.relative_embedding.data)
    backward_of_distances<A>(p, partials > 0 ? span_gradients + spans : nullptr);
}

}  // namespace orrery::cuda
