// Attention on a GPU, f32, f64 and bf16 stored with f32 arithmetic, for every weighting: the formulas and options of
// engine/attend.h, without tensor cores.  Every launch works on tiles of scores (attend_tile.cuh), and nothing of size
// queries x keys is stored.
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
//
// The caller has checked the problem as engine/attend does.  All pointers are to device memory, those of the options
// too.  Everything is queued.
#pragma once

#include <algorithm>
#include <cmath>

#include "cuda/attend_backward.cuh"

namespace orrery::cuda {

// ---- forward

// The running state of softmax for the rows of a thread: largest score of keys with m > 0 so far, and the thread's own
// part of the sum of m exp(s - largest).
template <class A>
struct OnlineSoftmax {
  static constexpr int each = AttendTile<A>::each;
  A largest[each], sum[each];

  __device__ OnlineSoftmax() {
#pragma unroll
    for (int a = 0; a < each; ++a) largest[a] = -std::numeric_limits<A>::infinity(), sum[a] = 0;
  }
  // Scores become weights; what was read before shrinks to the new largest score.
  __device__ void weigh(const typename AttendTile<A>::Registers& m, typename AttendTile<A>::Registers& s,
                        typename AttendTile<A>::Result& read) {
#pragma unroll
    for (int a = 0; a < each; ++a) {
      A top = largest[a];
#pragma unroll
      for (int b = 0; b < each; ++b)
        if (!(m[a][b] == 0) && s[a][b] > top) top = s[a][b];
      top = largest_of_row(top);
      const A base = top == -std::numeric_limits<A>::infinity() ? A(0) : top;  // nothing seen yet
      const A shrink = scalar::exp(largest[a] - base);
      largest[a] = top, sum[a] *= shrink;
#pragma unroll
      for (int b = 0; b < each; ++b) {
        s[a][b] = m[a][b] == 0 ? A(0) : m[a][b] * scalar::exp(s[a][b] - base);
        sum[a] += s[a][b];
      }
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
__global__ void __launch_bounds__(attend_threads)
    attend_forward_kernel(const __grid_constant__ AttendProblem<A, Weights> p, const WriteRows<A> output, A* log_sum) {
  using Tile = AttendTile<A>;
  Tile& tile = shared_memory<Tile>();
  const QueryWork<A> work(p, p.value_size);
  const QueryTile q = work.q;
  OnlineSoftmax<A> softmax;
  typename Tile::Result read = {};
  const KeyTiles<A> tiles(p, q);
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
    bool some = false;
    each_element<A>(q, keys, [&](int a, int b, int i, int j) {
      if (p.kept > 0 && !(m[a][b] == 0)) w[a][b] *= dropout_factor<A>(p, q, keys, i, j);
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
      const A sum = sum_of_row(softmax.sum[a]);
      const int i = q.first + tile_row() + 16 * a;
      factor[a] = sum == 0 ? A(0) : 1 / sum;
      if (i < p.queries && work.column == 0 && tile_column() == 0)
        log_sum[row_of(p, q) + i] =
            sum == 0 ? -std::numeric_limits<A>::infinity() : softmax.largest[a] + scalar::log(sum);
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
__global__ void __launch_bounds__(attend_threads)
    attend_statistics_kernel(const __grid_constant__ AttendProblem<A, Weights> p, const RowStatistics<A> out) {
  using Tile = AttendTile<A>;
  Tile& tile = shared_memory<Tile>();
  const QueryTile q = QueryWork<A>(p, 1).q;
  const KeyTiles<A> tiles(p, q);
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

// ---- the problem from what the caller gives

template <class T>
ReadRows<Arithmetic<T>> read_rows(Tokens<const T> tokens) {
  return {tokens.data, tokens.stride, 0, std::is_same_v<T, bf16>};
}
template <class T>
WriteRows<Arithmetic<T>> write_rows(Tokens<T> tokens) {
  return {tokens.data, tokens.stride, 0, std::is_same_v<T, bf16>};
}

template <class T, class Weights>
AttendProblem<Arithmetic<T>, Weights> attend_problem(const AttendSizes& s, const AttendOptions& o,
                                                     const Weights& weights, const AttendInputs<T>& inputs) {
  using A = Arithmetic<T>;
  constexpr int64_t far = 1 << 30;
  const auto number = [](int64_t n) { return static_cast<int>(n); };  // all are below 2^29
  AttendProblem<A, Weights> p{};
  p.batch = number(s.batch), p.queries = number(s.queries), p.keys = number(s.keys);
  p.query_heads = number(s.query_heads), p.key_heads = number(s.key_heads);
  p.head_size = number(s.head_size), p.value_size = number(s.value_size);
  p.slots = number(s.slots), p.distances = number(s.distances);
  p.causal = o.causal, p.own = o.own, p.span_per_query = o.span_per_query;
  p.query_offset = number(o.query_offset), p.window = number(std::min(o.window, far));
  p.key_lengths = o.key_lengths, p.query_documents = o.query_documents, p.key_documents = o.key_documents;
  p.scale = static_cast<A>(o.scale), p.soft_cap = static_cast<A>(o.soft_cap), p.ramp = static_cast<A>(o.ramp);
  p.random_key = o.random_key, p.counters = (s.keys + s.slots + 3) / 4;
  p.least = static_cast<uint32_t>(std::min(std::ceil(o.dropout * 0x1p32), 0x1p32 - 1));
  p.kept = o.dropout > 0 ? static_cast<A>(1 / (1 - o.dropout)) : A(0);
  p.weights = weights;
  p.query = read_rows(inputs.query), p.key = read_rows(inputs.key), p.value = read_rows(inputs.value);
  p.slot_key = read_rows(inputs.slot_key), p.slot_value = read_rows(inputs.slot_value);
  p.distance_key = read_rows(inputs.distance_key);
  p.distance_bias = inputs.distance_bias, p.span = inputs.span;
  return p;
}

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
  launch(attend_launch<A>("attend: forward", blocks), attend_forward_kernel<A, Weights>,
         attend_problem(s, options, weights, inputs), write_rows(output), log_sum);
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

// dz of every query is written first: to its place, or to scratch memory from which those of a head are added up.
template <class T, class Weights>
void attend_backward(const AttendSizes& s, const AttendOptions& options, const Weights& weights,
                     const AttendInputs<T>& inputs, Tokens<const T> output, const Arithmetic<T>* log_sum,
                     Tokens<const T> output_gradient, const AttendGradients<T>& gradients,
                     const StatisticsGradients<Arithmetic<T>>& statistics = {}) {
  using A = Arithmetic<T>;
  const int64_t rows = s.batch * s.query_heads * s.queries;
  const bool spans_of_heads = gradients.span && !options.span_per_query;
  const int64_t parts = gradients.distance_key.data ? s.query_heads * s.distances * s.head_size : 0;
  const int64_t inner = Weights::softmax ? rows : 0, spans = spans_of_heads ? rows : 0;
  const Workspace workspace(std::max<int64_t>(inner + spans + parts, 1) * static_cast<int64_t>(sizeof(A)));
  A* const inner_products = static_cast<A*>(workspace.data());
  A* const span_rows = spans_of_heads ? inner_products + inner : gradients.span;
  A* const distance_parts = inner_products + inner + spans;

  auto problem = attend_problem(s, options, weights, inputs);
  problem.log_sum = log_sum, problem.inner = inner_products;
  problem.output_gradient = read_rows(output_gradient), problem.statistics = statistics;
  const auto whole = [](int64_t n) { return std::max<int64_t>(n, 1); };
  if (inner > 0)
    launch({"attend: inner products", static_cast<unsigned>((rows + 7) / 8), attend_threads}, attend_inner_kernel<A>,
           InnerProducts<A>{p_sizes(s), read_rows(output), read_rows(output_gradient)}, inner_products);
  if (gradients.query.data || gradients.span) {
    const int64_t chunks = gradients.query.data ? attend_chunks<A>(s.head_size) : 1;
    if (const int64_t blocks = s.batch * s.query_heads * attend_tiles<A>(s.queries) * chunks)
      launch(attend_launch<A>("attend: backward of queries", blocks), attend_backward_queries_kernel<A, Weights>,
             problem, write_rows(gradients.query), span_rows);
  }
  const int64_t key_chunks = attend_chunks<A>(std::max(s.head_size, s.value_size));
  const auto backward_of_keys = [&](bool slots, int64_t blocks, Tokens<T> key, Tokens<T> value) {
    if (blocks > 0 && (key.data || value.data))
      launch(attend_launch<A>("attend: backward of keys", blocks), attend_backward_keys_kernel<A, Weights>, problem,
             slots, write_rows(key), write_rows(value));
  };
  backward_of_keys(false, s.batch * s.key_heads * attend_tiles<A>(s.keys) * key_chunks, gradients.key, gradients.value);
  backward_of_keys(true, s.key_heads * attend_tiles<A>(s.slots) * key_chunks, gradients.slot_key, gradients.slot_value);
  if (gradients.distance_bias || parts > 0) {
    const int64_t chunks = parts > 0 ? attend_chunks<A>(s.head_size) : 1;
    launch(attend_launch<A>("attend: backward of distances", s.query_heads * attend_tiles<A>(s.distances) * chunks),
           attend_backward_distances_kernel<A, Weights>, problem, gradients.distance_bias,
           parts > 0 ? distance_parts : nullptr);
  }
  if (parts > 0)
    launch({"attend: distance keys", static_cast<unsigned>(s.distances), attend_threads}, attend_add_heads_kernel<A>,
           distance_parts, static_cast<int>(s.query_heads), static_cast<int>(s.head_size),
           write_rows(gradients.distance_key));
  if (spans_of_heads)
    launch({"attend: spans", static_cast<unsigned>(whole(s.query_heads)), 32}, attend_add_rows_kernel<A>, span_rows,
           s.batch, s.queries, gradients.span);
}

}  // namespace orrery::cuda
