// Attention on a GPU, f32, f64 and bf16 stored with f32 arithmetic, for every weighting: the formulas and options of
// engine/base/attention.h, without tensor cores, which have bf16 of some weightings to themselves
// (attend_tensor_core.cuh). Every launch works on tiles of scores (attend_tile.cuh), and nothing of size queries x
// keys is stored.
//
//   forward             a block holds a tile of queries and walks along the keys it sees, then along the slots.  In its
//                       registers: the output, and for softmax the largest score and the sum so far.
//   statistics          the same walk with the final weights; what is counted stays in registers.
//   backward, queries   the same walk; dq and dz stay in registers.                           attend_backward.cuh
//   backward, keys      a block holds a tile of keys (or of slots) and walks along the queries that see it, for all
//                       heads (and for slots all sequences) that read it; dk and dv stay in registers.
//   backward, distances a block holds `side` neighbouring distances of a head and walks along the diagonals of scores
//                       that they own, over all sequences; db and dp stay in registers.
//
// So each gradient is added up by one block in an order that the sizes alone decide: no atomics, the same bits always.
// The price is that scores are computed once in forward, and in backward once for queries, once for keys, and twice
// more where terms of the distance want gradients.
//
// A tile in which no thread sees anything is skipped after one vote, a tile whose weights are all zero after another.
#pragma once

#include <algorithm>

#include "cuda/attention/backward.cuh"
#include "cuda/attention/tensor_core.cuh"

namespace orrery::cuda {

// ---- forward

template <class A>
struct OnlineSoftmax {
  static constexpr int each = AttendTile<A>::each;
  SoftmaxRow<A> rows[each];

  // Scores become weights; what was read before shrinks to the new largest score.
  __device__ void weigh(const typename AttendTile<A>::Registers& m, typename AttendTile<A>::Registers& s,
                        typename AttendTile<A>::Result& read) {
#pragma unroll
    for (int a = 0; a < each; ++a) {
      A top = rows[a].largest;
#pragma unroll
      for (int b = 0; b < each; ++b)
        if (!(m[a][b] == 0) && s[a][b] > top) top = s[a][b];
      const A shrink = rows[a].raise(largest_of_row(top));
#pragma unroll
      for (int b = 0; b < each; ++b) s[a][b] = rows[a].weigh(m[a][b], s[a][b]);
#pragma unroll
      for (int e = 0; e < AttendTile<A>::columns; ++e) read[a][e] *= shrink;
    }
  }
};

// m F(s)
template <class A, class P>
__device__ void pointwise_weights(const P& p, const typename AttendTile<A>::Registers& m,
                                  typename AttendTile<A>::Registers& s) {
#pragma unroll
  for (int a = 0; a < AttendTile<A>::each; ++a)
#pragma unroll
    for (int b = 0; b < AttendTile<A>::each; ++b) s[a][b] = m[a][b] == 0 ? A(0) : m[a][b] * p.weights.f.value(s[a][b]);
}

template <class A, class Weights>
__global__ void __launch_bounds__(attend_threads, 1)
    attend_forward_kernel(const __grid_constant__ AttendProblem<A, Weights> p, const WriteRows<A> output, A* log_sum) {
  using Tile = AttendTile<A>;
  Tile& tile = shared_memory<Tile>();
  const QueryWork<A> work(p, p.value_size);
  const QueryTile q = work.q;
  OnlineSoftmax<A> softmax;
  typename Tile::Result read = {};
  const KeyTiles tiles(p, q, Tile::side, Tile::side);
  int vote = 0;
  for (int n = 0; n < tiles.count; ++n) {
    const KeyTile keys = tiles[n];
    typename Tile::Registers m, w;
    if (!any_of_block(tile, vote, compute_shares<A>(p, q, keys, m))) continue;
    compute_scores(tile, p, q, keys, m, w);
    if constexpr (Weights::softmax)
      softmax.weigh(m, w, read);
    else
      pointwise_weights<A>(p, m, w);
    const RandomKey random = p.kept > 0 ? p.random_key.now() : RandomKey{};
    bool some = false;
    each_element<A>(q, keys, [&](int a, int b, int i, int j) {
      if (p.kept > 0 && !(m[a][b] == 0)) w[a][b] *= dropout_factor<A>(p, random, q, keys, i, j);
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
        read);
  }

  A factor[Tile::each];
#pragma unroll
  for (int a = 0; a < Tile::each; ++a) {
    factor[a] = 1;
    if constexpr (Weights::softmax) {
      const A sum = sum_of_row(softmax.rows[a].sum);
      const int i = q.first + tile_row() + 16 * a;
      factor[a] = sum == 0 ? A(0) : 1 / sum;
      if (i < p.queries && work.column == 0 && tile_column() == 0)
        log_sum[row_of(p, q) + i] = softmax.rows[a].log_sum(sum);
    }
  }
  const WriteRows<A> to = output.from(int64_t{q.sequence} * p.queries, int64_t{q.head} * p.value_size + work.column);
  each_result<A>(read, work.columns, [&](int a, int row, int column, A value) {
    if (q.first + row < p.queries) to.set(q.first + row, column, value * factor[a]);
  });
}

// ---- statistics

// Of the weights of a row: their sum, that of p = max(w, 0) and that of p ln p; how many there are, how many of them
// are zero, and the largest.
template <class A>
struct RowCounts {
  A sum = 0, positive = 0, logarithms = 0, seen = 0, zeros = 0, largest = -std::numeric_limits<A>::infinity();

  __device__ void add(A w) {
    sum += w, seen += 1;
    if (w == 0) zeros += 1;
    if (w > 0) positive += w, logarithms += w * scalar::log(w);
    if (w > largest) largest = w;
  }
  // Joins what the threads of a row have counted.
  __device__ void join() {
    sum = sum_of_row(sum), positive = sum_of_row(positive), logarithms = sum_of_row(logarithms);
    seen = sum_of_row(seen), zeros = sum_of_row(zeros), largest = largest_of_row(largest);
  }
  // H = -sum (p / P) ln (p / P) = ln P - (sum p ln p) / P
  __device__ void write(const RowStatistics<A>& out, int64_t at) const {
    if (out.sum) out.sum[at] = sum;
    if (out.positive_sum) out.positive_sum[at] = positive;
    if (out.entropy) out.entropy[at] = positive > 0 ? scalar::log(positive) - logarithms / positive : A(0);
    if (out.zero_share) out.zero_share[at] = seen > 0 ? zeros / seen : A(0);
    if (out.maximum) out.maximum[at] = seen > 0 ? largest : A(0);
  }
};

template <class A, class Weights>
__global__ void __launch_bounds__(attend_threads, 1)
    attend_statistics_kernel(const __grid_constant__ AttendProblem<A, Weights> p, const RowStatistics<A> out) {
  using Tile = AttendTile<A>;
  Tile& tile = shared_memory<Tile>();
  const QueryTile q = QueryWork<A>(p, 1).q;
  const KeyTiles tiles(p, q, Tile::side, Tile::side);
  RowCounts<A> counts[Tile::each];
  A log_sum[Tile::each];
#pragma unroll
  for (int a = 0; a < Tile::each; ++a) {
    const int i = q.first + tile_row() + 16 * a;
    log_sum[a] = Weights::softmax && i < p.queries ? p.log_sum[row_of(p, q) + i] : A(0);
  }
  int vote = 0;
  for (int n = 0; n < tiles.count; ++n) {
    const KeyTile keys = tiles[n];
    typename Tile::Registers m, s;
    if (!any_of_block(tile, vote, compute_shares<A>(p, q, keys, m))) continue;
    compute_scores(tile, p, q, keys, m, s);
    each_element<A>(q, keys, [&](int a, int b, int, int) {
      if (!(m[a][b] == 0)) counts[a].add(m[a][b] * unmasked_weight(p, s[a][b], log_sum[a]));
    });
  }
#pragma unroll
  for (int a = 0; a < Tile::each; ++a) {
    const int i = q.first + tile_row() + 16 * a;
    counts[a].join();
    if (i < p.queries && tile_column() == 0) counts[a].write(out, row_of(p, q) + i);
  }
}

// ---- launches

template <class A>
Launch attend_launch(const char* name, int64_t blocks, int line = __builtin_LINE()) {
  return {name, static_cast<unsigned>(blocks), attend_threads, sizeof(AttendTile<A>), __builtin_FILE(), line};
}
template <class A>
int64_t attend_tiles(int64_t tokens) {
  return (tokens + AttendTile<A>::side - 1) / AttendTile<A>::side;
}
template <class A>
int64_t attend_chunks(int64_t columns) {
  return (columns + AttendTile<A>::chunk - 1) / AttendTile<A>::chunk;
}

// ---- what is called

template <class T, class Weights>
void attend_forward(const AttendSizes& s, const AttendOptions& options, const Weights& weights,
                    const AttendInputs<T>& inputs, Tokens<T> output, Arithmetic<T>* log_sum) {
  using A = Arithmetic<T>;
  const int64_t blocks = s.batch * s.query_heads * attend_tiles<A>(s.queries) * attend_chunks<A>(s.value_size);
  if (blocks == 0) return;
  const auto problem = attend_problem(s, options, weights, inputs);
  if constexpr (tensor_core_weighting<T, Weights>)
    if (tensor_cores_attend(s, inputs)) return tensor_core_attend_forward(s, problem, output, log_sum);
  launch(attend_launch<A>("attend: forward", blocks), attend_forward_kernel<A, Weights>, problem, write_rows(output),
         log_sum);
}

template <class T, class Weights>
void attend_statistics(const AttendSizes& s, const AttendOptions& options, const Weights& weights,
                       const AttendInputs<T>& inputs, const Arithmetic<T>* log_sum,
                       const RowStatistics<Arithmetic<T>>& statistics) {
  using A = Arithmetic<T>;
  const int64_t blocks = s.batch * s.query_heads * attend_tiles<A>(s.queries);
  if (blocks == 0) return;
  auto problem = attend_problem(s, options, weights, inputs);
  problem.log_sum = log_sum;
  launch(attend_launch<A>("attend: statistics", blocks), attend_statistics_kernel<A, Weights>, problem, statistics);
}

template <class T, class P>
void backward_of_queries(const AttendSizes& s, const P& problem, const AttendGradients<T>& gradients,
                         Arithmetic<T>* spans) {
  using A = Arithmetic<T>;
  if (!gradients.query.data && !spans) return;
  const int64_t chunks = gradients.query.data ? attend_chunks<A>(s.head_size) : 1;
  const int64_t blocks = s.batch * s.query_heads * attend_tiles<A>(s.queries) * chunks;
  if (blocks > 0)
    launch(attend_launch<A>("attend: backward of queries", blocks), attend_backward_queries_kernel<A, P>, problem,
           write_rows(gradients.query), spans);
}
// `tiles`: of all heads that have gradients of their own
template <class T, class P>
void backward_of_keys(const P& problem, bool slots, int64_t tiles, Tokens<T> key, Tokens<T> value) {
  using A = Arithmetic<T>;
  const int64_t blocks = tiles * attend_chunks<A>(std::max(problem.head_size, problem.value_size));
  if (blocks > 0 && (key.data || value.data))
    launch(attend_launch<A>("attend: backward of keys", blocks), attend_backward_keys_kernel<A, P>, problem, slots,
           write_rows(key), write_rows(value));
}
template <class T, class P>
void backward_of_distances(const AttendSizes& s, const P& problem, const AttendGradients<T>& gradients,
                           Arithmetic<T>* key_parts) {
  using A = Arithmetic<T>;
  const int64_t chunks = key_parts ? attend_chunks<A>(s.head_size) : 1;
  launch(attend_launch<A>("attend: backward of distances", s.query_heads * attend_tiles<A>(s.distances) * chunks),
         attend_backward_distances_kernel<A, P>, problem, gradients.relative_bias, key_parts);
  if (key_parts)
    launch({"attend: distance keys", static_cast<unsigned>(s.distances), attend_threads}, attend_add_heads_kernel<A>,
           key_parts, problem.query_heads, problem.head_size, write_rows(gradients.relative_embedding));
}

// Scratch memory of a backward pass, in one piece: c of every query for softmax, dz of every query where spans belong
// to heads, and dp of every head.
template <class A>
struct BackwardScratch {
  int64_t inner, spans, relative_embeddings;  // numbers

  template <class Weights, class T>
  static BackwardScratch of(const AttendSizes& s, const AttendOptions& options, const AttendGradients<T>& gradients) {
    const int64_t rows = s.batch * s.query_heads * s.queries;
    return {Weights::softmax ? rows : 0, gradients.span && !options.span_per_query ? rows : 0,
            gradients.relative_embedding.data ? s.query_heads * s.distances * s.head_size : 0};
  }
  int64_t bytes() const { return (inner + spans + relative_embeddings) * static_cast<int64_t>(sizeof(A)); }
};

template <class T, class Weights>
void attend_backward(const AttendSizes& s, const AttendOptions& options, const Weights& weights,
                     const AttendInputs<T>& inputs, Tokens<const T> output, const Arithmetic<T>* log_sum,
                     Tokens<const T> output_gradient, const AttendGradients<T>& gradients,
                     const StatisticsGradients<Arithmetic<T>>& statistics) {
  using A = Arithmetic<T>;
  const auto scratch = BackwardScratch<A>::template of<Weights>(s, options, gradients);
  const Workspace workspace(scratch.bytes());
  A *const inner = static_cast<A*>(workspace.data()), *const spans = inner + scratch.inner;
  A* const relative_embeddings = spans + scratch.spans;
  const bool spans_of_heads = gradients.span && !options.span_per_query;
  auto problem = attend_problem(s, options, weights, inputs);
  problem.log_sum = log_sum, problem.inner = inner;
  problem.output_gradient = read_rows(output_gradient), problem.statistics = statistics;

  if (scratch.inner > 0)
    launch({"attend: inner products", attend_inner_blocks(scratch.inner), attend_threads}, attend_inner_kernel<A>,
           InnerProducts<A>::of(s, read_rows(output), problem.output_gradient), inner);
  if constexpr (tensor_core_weighting<T, Weights>)
    if (tensor_cores_attend(s, inputs, statistics)) return tensor_core_attend_backward(s, problem, gradients);
  backward_of_queries(s, problem, gradients, spans_of_heads ? spans : gradients.span);
  if (spans_of_heads)
    launch({"attend: spans", static_cast<unsigned>(s.query_heads), 32}, attend_add_rows_kernel<A>, spans, s.batch,
           s.queries, gradients.span);
  backward_of_keys(problem, false, s.batch * s.key_heads * attend_tiles<A>(s.keys), gradients.key, gradients.value);
  backward_of_keys(problem, true, s.key_heads * attend_tiles<A>(s.slots), gradients.slot_key, gradients.slot_value);
  if (gradients.relative_bias || gradients.relative_embedding.data)
    backward_of_distances(s, problem, gradients, scratch.relative_embeddings > 0 ? relative_embeddings : nullptr);
}

}  // namespace orrery::cuda
