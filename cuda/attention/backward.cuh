// Attention backward: see attention.cuh; engine/attention_formula/problem.h has g, ds, dm and dt of a tile.
#pragma once

#include "cuda/attention/tile.cuh"

namespace orrery::cuda {

// A block's tile of queries and its columns of the result.
template <class A>
struct QueryWork {
  QueryTile q;
  int column, columns;

  template <class P>
  __device__ QueryWork(const P& p, int size) {
    constexpr int chunk = AttentionTile<A>::chunk;
    const unsigned chunks = static_cast<unsigned>((size + chunk - 1) / chunk);
    q = query_tile(p, blockIdx.x / chunks, AttentionTile<A>::side);
    column = static_cast<int>(blockIdx.x % chunks) * chunk;
    columns = minimum(chunk, size - column);
  }
};

// Values per query, for the rows of a thread.
template <class A, class P>
struct RowTerms {
  static constexpr int each = AttentionTile<A>::each;
  static constexpr bool softmax = decltype(P::weights)::softmax;
  A log_sum[each], centre[each];  // centre: c, or -dS
  EntropyTerm<A> entropy[each];

  __device__ RowTerms(const P& p, const QueryTile& q) {
    const StatisticsGradients<A>& given = p.statistics_gradients;
#pragma unroll
    for (int a = 0; a < each; ++a) {
      const int i = q.first + tile_row() + 16 * a;
      const int64_t index = row_of(p, q) + i;
      const bool exists = i < p.queries;
      log_sum[a] = softmax && exists ? log_sum_or_infinity(p.log_sum[index]) : A(0);
      centre[a] = !exists ? A(0) : softmax ? p.inner[index] : given.sum_gradient ? -given.sum_gradient[index] : A(0);
      entropy[a] = exists ? entropy_term(given, index, Logarithm{}) : EntropyTerm<A>{};
    }
  }
};

// Sums of dm and of dp of F for the rows of a thread.
template <class A, class P>
struct RowGradients {
  A ramp[AttentionTile<A>::each] = {}, parameters[AttentionTile<A>::each][maximum(1, parameters_of<P>)] = {};
};

// Turns scores `s` into weights with dropout, and <do, v> in `g` into dt; both are 0 where masked.
// Adds dm and dp to `sums`. Returns true if this thread has a nonzero weight or dt.
template <class A, class P>
__device__ bool differentiate(const P& p, const QueryTile& q, const KeyTile& keys, const RowTerms<A, P>& terms,
                              const typename AttentionTile<A>::Registers& ramp_values,
                              typename AttentionTile<A>::Registers& s, typename AttentionTile<A>::Registers& g,
                              RowGradients<A, P>& sums) {
  [[maybe_unused]] const auto& f = function_of<A>(p, q);
  const RandomKey rng_key = p.dropout.kept > 0 ? p.dropout.rng_key.load() : RandomKey{};
  bool some = false;
  each_element<A>(q, keys, [&](int a, int b, int i, int j) {
    const A m = mask_weight(ramp_values[a][b]), score = s[a][b];
    if (is_masked(ramp_values[a][b], true)) {
      s[a][b] = g[a][b] = 0;
      return;
    }
    const A kept = p.dropout.kept > 0 ? dropout_factor<A>(p, rng_key, q, keys, i, j) : A(1);
    const A unmasked = unmasked_weight(p, f, score, terms.log_sum[a]), w = times_mask_weight(m, unmasked);
    A gradient = kept * g[a][b] - terms.centre[a];
    if (p.statistics_gradients.entropy_gradient) gradient += terms.entropy[a].gradient(w, Logarithm{});
    sums.ramp[a] += span_gradient(ramp_values[a][b], unmasked * gradient);
    if (m == 0) {
      s[a][b] = g[a][b] = 0;
      return;
    }
    if constexpr (parameters_of<P> > 0) {
      A derivatives[parameters_of<P>];
      f.parameter_derivatives(score, derivatives);
      for (int k = 0; k < parameters_of<P>; ++k) sums.parameters[a][k] += m * gradient * derivatives[k];
    }
    s[a][b] = w * kept;
    g[a][b] = score_gradient(p, f, m, score, w, gradient) * capped_derivative(p, score);
    some = some || s[a][b] != 0 || g[a][b] != 0;
  });
  return some;
}

// Computes weights and dt of one tile in registers; returns the result of `differentiate`.
template <class A, class P>
__device__ bool differentiate_tile(AttentionTile<A>& tile, const P& p, const QueryTile& q, const KeyTile& keys,
                                   const RowTerms<A, P>& terms, const typename AttentionTile<A>::Registers& ramp_values,
                                   typename AttentionTile<A>::Registers& w, typename AttentionTile<A>::Registers& dt,
                                   RowGradients<A, P>& sums) {
  constexpr int depth = AttentionTile<A>::depth;
  compute_scores(tile, p, q, keys, ramp_values, true, w);
  const ReadRows<A> gradients = rows_of_queries(p, p.output_gradient, q, p.value_size);
  const ReadRows<A> values = rows_of_keys(p, p.value, p.slot_value, q, keys, p.value_size);
  each_element<A>(q, keys, [&](int a, int b, int, int) { dt[a][b] = 0; });
  for (int column = 0; column < p.value_size; column += depth) {
    const int columns = minimum(depth, p.value_size - column);
    refill([&] {
      load_panel<A>(tile.left, gradients, q.first, p.queries, column, columns);
      load_panel<A>(tile.right, values, keys.first, keys.end, column, columns);
    });
    multiply_panels(tile, columns, dt);
  }
  return differentiate(p, q, keys, terms, ramp_values, w, dt, sums);
}

// ---- c = <do, o>: one warp per row

inline unsigned attention_inner_blocks(int64_t rows) {
  constexpr int64_t warps = attention_threads / 32;
  return static_cast<unsigned>((rows + warps - 1) / warps);
}
__device__ inline int64_t row_of_warp() { return int64_t{blockIdx.x} * (attention_threads / 32) + threadIdx.x / 32; }
template <class A>
__device__ A inner_product_of_row(const AttentionProblem<A>& p, int64_t row) {
  const int64_t sequence = row / p.queries / p.query_heads, head = row / p.queries % p.query_heads;
  const int64_t token = sequence * p.queries + row % p.queries, column = head * p.value_size;
  const ReadRows<A> outputs = rows_from(p, TensorView<const A>{p.output.data, p.output.stride}, token, column);
  const ReadRows<A> gradients = rows_from(p, p.output_gradient, token, column);
  A sum = 0;
  for (int c = static_cast<int>(threadIdx.x) % 32; c < p.value_size; c += 32)
    sum += outputs.at(0, c) * gradients.at(0, c);
  return across_lanes(sum, Plus{}, 32);
}
template <class A>
__global__ void __launch_bounds__(attention_threads)
    attention_inner_kernel(const __grid_constant__ AttentionProblem<A> p, int64_t rows, A* inner) {
  const int64_t row = row_of_warp();
  wait_for_earlier();
  allow_next();
  if (row >= rows) return;
  const A sum = inner_product_of_row(p, row);
  if (threadIdx.x % 32 == 0) inner[row] = sum;
}

// ---- dq and dz

// dq += dt (k + p): first with all panels of k, then with those of p.
template <class A, class P>
__device__ void add_query_gradients(AttentionTile<A>& tile, const P& p, const QueryTile& q, const KeyTile& keys,
                                    int first, int columns, typename AttentionTile<A>::Result& sum) {
  constexpr int side = AttentionTile<A>::side, each = AttentionTile<A>::each, depth = AttentionTile<A>::depth;
  const ReadRows<A> rows = rows_of_keys(p, p.key, p.slot_key, q, keys, p.head_size);
  const auto weight = [&](int row, int k) { return tile.gradients[row][k]; };
  add_weighted_rows(
      tile, columns, weight,
      [&](int column, int width) { load_panel<A>(tile.right, rows, keys.first, keys.end, first + column, width); },
      sum);
  if (!p.relative_embedding.data || keys.slots) return;
#pragma unroll
  for (int panel = 0; panel < AttentionTile<A>::chunk / depth; ++panel) {
    if (panel * depth >= columns) break;
    refill([&] { load_distances(tile, p, q, keys, first + panel * depth, minimum(depth, columns - panel * depth)); });
    A tile_sum[each][2] = {};
#pragma unroll 2
    for (int k = 0; k < side; ++k)
#pragma unroll
      for (int a = 0; a < each; ++a) {
        const int row = tile_row() + 16 * a;
        if (const A w = weight(row, k); w != 0) {
          tile_sum[a][0] += w * tile.distances[row - k + side - 1][tile_column()];
          tile_sum[a][1] += w * tile.distances[row - k + side - 1][tile_column() + 16];
        }
      }
#pragma unroll
    for (int a = 0; a < each; ++a) sum[a][2 * panel] += tile_sum[a][0], sum[a][2 * panel + 1] += tile_sum[a][1];
  }
}

template <class A, class P>
__global__ void __launch_bounds__(attention_threads, 1)
    attention_backward_queries_kernel(const __grid_constant__ P p, A* span_gradient, A* parameter_gradients) {
  using Tile = AttentionTile<A>;
  Tile& tile = shared_memory<Tile>();
  const TensorView<A> gradient = p.gradients.query;
  const QueryWork<A> work(p, gradient.data ? p.head_size : 1);
  const QueryTile q = work.q;
  wait_for_earlier();
  const RowTerms<A, P> terms(p, q);
  typename Tile::Result sum = {};
  RowGradients<A, P> sums;
  const KeyTiles tiles(p, q, Tile::side, Tile::side);
  int vote = 0;
  for (int n = 0; n < tiles.count; ++n) {
    const KeyTile keys = tiles[n];
    typename Tile::Registers ramp_values, w, dt;
    if (!any_of_block(tile, vote, compute_ramp_values<A>(p, q, keys, true, ramp_values))) continue;
    const bool some = differentiate_tile(tile, p, q, keys, terms, ramp_values, w, dt, sums);
    if (!gradient.data) continue;
    store_scores<A>(tile.gradients, dt);
    if (any_of_block(tile, vote, some)) add_query_gradients(tile, p, q, keys, work.column, work.columns, sum);
  }

  allow_next();
  if (gradient.data) {
    const WriteRows<A> to =
        rows_from(p, gradient, int64_t{q.sequence} * p.queries, int64_t{q.head} * p.head_size + work.column);
    each_result<A>(sum, work.columns, [&](int, int row, int column, A value) {
      if (q.first + row < p.queries) to.set(q.first + row, column, p.scale * value);
    });
  }
  if (work.column > 0) return;
  const auto write_row_sums = [&](A* to, const auto& term, A divisor) {  // term(a): this thread's part of row a
#pragma unroll
    for (int a = 0; a < Tile::each; ++a) {
      const int i = q.first + tile_row() + 16 * a;
      const A total = sum_of_row(term(a)) / divisor;
      if (i < p.queries && tile_column() == 0) to[row_of(p, q) + i] = total;
    }
  };
  if (parameter_gradients)
#pragma unroll
    for (int k = 0; k < parameters_of<P>; ++k)
      write_row_sums(parameter_gradients + k * p.rows(), [&](int a) { return sums.parameters[a][k]; }, A(1));
  if (span_gradient) write_row_sums(span_gradient, [&](int a) { return sums.ramp[a]; }, p.ramp);
}

// Gradients of spans and parameters: one warp for each head, and each of gridDim.y arrays, sums the head's rows.
template <class A>
__global__ void __launch_bounds__(32)
    attention_add_rows_kernel(const A* rows, int64_t batch, int64_t queries, A* spans) {
  A sum = 0;
  wait_for_earlier();
  allow_next();
  const A* const own = rows + blockIdx.y * batch * gridDim.x * queries;
  for (int64_t n = threadIdx.x; n < batch * queries; n += 32)
    sum += own[(n / queries * gridDim.x + blockIdx.x) * queries + n % queries];
  sum = across_lanes(sum, Plus{}, 32);
  if (threadIdx.x == 0) spans[blockIdx.x * gridDim.y + blockIdx.y] = sum;
}
// Adds `arrays` arrays of rows, (batch, heads, rows) each, to sums of the heads, (heads, arrays).
template <class A>
void add_rows_of_heads(const char* name, const AttentionProblem<A>& p, const A* all, int64_t rows, int arrays, A* to) {
  launch({name, dim3(static_cast<unsigned>(p.query_heads), static_cast<unsigned>(arrays)), 32},
         attention_add_rows_kernel<A>, all, int64_t{p.batch}, rows, to);
}

// ---- dk and dv, of the context or of slots

template <class A, class P>
__global__ void __launch_bounds__(attention_threads, 1)
    attention_backward_keys_kernel(const __grid_constant__ P p, bool slots) {
  using Tile = AttentionTile<A>;
  constexpr int side = Tile::side, chunk = Tile::chunk;
  Tile& tile = shared_memory<Tile>();
  const int longest = p.head_size > p.value_size ? p.head_size : p.value_size, chunks = (longest + chunk - 1) / chunk;
  const int column = static_cast<int>(blockIdx.x) % chunks * chunk, block = static_cast<int>(blockIdx.x) / chunks;
  const int heads = slots ? p.kv_heads : p.batch * p.kv_heads;
  const int head = block % heads, own_sequence = head / p.kv_heads, kv_head = head % p.kv_heads;
  const int first_key = block / heads * side, keys_end = slots ? p.slots : p.keys;
  const TensorView<A> key_gradient = slots ? p.gradients.slot_key : p.gradients.key;
  const TensorView<A> value_gradient = slots ? p.gradients.slot_value : p.gradients.value;
  const int key_columns = key_gradient.data ? minimum(chunk, p.head_size - column) : 0;
  const int value_columns = value_gradient.data ? minimum(chunk, p.value_size - column) : 0;
  const int group = p.query_heads / p.kv_heads;
  typename Tile::Result dk = {}, dv = {};
  RowGradients<A, P> sums;
  int vote = 0;
  wait_for_earlier();
  for (int sequence = slots ? 0 : own_sequence; sequence < (slots ? p.batch : own_sequence + 1); ++sequence) {
    const KeyTile keys = {slots, first_key, slots ? p.slots : length_of(p, sequence)};
    const Interval range = query_range(p, keys, side, side);
    for (int n = 0; n < group; ++n)
      for (int first = range.begin; first < range.end; first += side) {
        const QueryTile q = {sequence, kv_head * group + n, first};
        typename Tile::Registers ramp_values, w, dt;
        if (!any_of_block(tile, vote, compute_ramp_values<A>(p, q, keys, true, ramp_values))) continue;
        const RowTerms<A, P> terms(p, q);
        const bool some = differentiate_tile(tile, p, q, keys, terms, ramp_values, w, dt, sums);
        store_scores<A>(tile.weights, w);
        store_scores<A>(tile.gradients, dt);
        if (!any_of_block(tile, vote, some)) continue;
        const ReadRows<A> outputs = rows_of_queries(p, p.output_gradient, q, p.value_size);
        const ReadRows<A> queries = rows_of_queries(p, p.query, q, p.head_size);
        add_weighted_rows(
            tile, value_columns, [&](int key, int i) { return tile.weights[i][key]; },
            [&](int c, int width) { load_panel<A>(tile.right, outputs, q.first, p.queries, column + c, width); }, dv);
        add_weighted_rows(
            tile, key_columns, [&](int key, int i) { return tile.gradients[i][key]; },
            [&](int c, int width) { load_panel<A>(tile.right, queries, q.first, p.queries, column + c, width); }, dk);
      }
  }
  allow_next();
  const int64_t token = slots ? 0 : int64_t{own_sequence} * p.keys;
  const WriteRows<A> to_key = rows_from(p, key_gradient, token, int64_t{kv_head} * p.head_size + column);
  const WriteRows<A> to_value = rows_from(p, value_gradient, token, int64_t{kv_head} * p.value_size + column);
  each_result<A>(dk, key_columns, [&](int, int row, int c, A value) {
    if (first_key + row < keys_end) to_key.set(first_key + row, c, p.scale * value);
  });
  each_result<A>(dv, value_columns, [&](int, int row, int c, A value) {
    if (first_key + row < keys_end) to_value.set(first_key + row, c, value);
  });
}

// ---- db and dp

// A tile of queries and one of keys with some of a block's distances [first, first + side). Keys
// before their query have x > 0. On each side two tiles of keys have all pairs at these distances.
struct DistanceTile {
  int sign;      // sign of x = i + query_offset - j
  int diagonal;  // key - query of the tile's pairs at distance `first`, both counted within the tile
  KeyTile keys;

  // turn: 0 to 3
  template <class P>
  __device__ DistanceTile(const P& p, const QueryTile& q, int turn, int first, int side) {
    sign = turn < 2 ? 1 : -1;
    const int position = q.first + p.query_offset - sign * first;  // key at distance `first` from the first query
    keys = {false, position + (turn % 2 - (sign > 0)) * side, length_of(p, q.sequence)};
    diagonal = position - keys.first;
  }
  __device__ int key(int query, int distance) const { return query + diagonal - sign * distance; }
  // Returns true if this tile owns the pairs at this x.
  __device__ bool owns(int x, int first, int side) const {
    const int distance = sign * x - first;
    return distance >= 0 && distance < side && (x != 0 || sign > 0);
  }
};

// embedding_partials: (query_heads, distances, head_size); null: not computed.
template <class A, class P>
__global__ void __launch_bounds__(attention_threads, 1)
    attention_backward_distances_kernel(const __grid_constant__ P p, A* embedding_partials) {
  using Tile = AttentionTile<A>;
  constexpr int side = Tile::side;
  Tile& tile = shared_memory<Tile>();
  const int chunks = embedding_partials ? (p.head_size + Tile::chunk - 1) / Tile::chunk : 1,
            tiles = (p.distances + side - 1) / side;
  const int column = static_cast<int>(blockIdx.x) % chunks * Tile::chunk, block = static_cast<int>(blockIdx.x) / chunks;
  const int columns = embedding_partials ? minimum(Tile::chunk, p.head_size - column) : 0;
  const int first_distance = block % tiles * side, head = block / tiles, thread = static_cast<int>(threadIdx.x);
  A* const to = embedding_partials + (int64_t{head} * p.distances + first_distance) * p.head_size + column;
  RowGradients<A, P> sums;
  double bias_sum = 0;  // db of one distance, in threads below `side`
  int vote = 0;
  wait_for_earlier();
  for (int sequence = 0; sequence < p.batch; ++sequence) {
    typename Tile::Result sum = {};
    for (int first = 0; first < p.queries; first += side) {
      const QueryTile q = {sequence, head, first};
      for (int turn = 0; turn < (p.last <= p.query_offset ? 2 : 4); ++turn) {
        const DistanceTile pairs(p, q, turn, first_distance, side);
        if (pairs.keys.first >= pairs.keys.end || pairs.keys.first + side <= 0) continue;
        typename Tile::Registers ramp_values, w, dt;
        bool visible = false;
        each_element<A>(q, pairs.keys, [&](int a, int b, int i, int j) {
          const bool own = pairs.owns(i + p.query_offset - j, first_distance, side);
          ramp_values[a][b] = own ? ramp_value<A>(p, q, pairs.keys, i, j) : masked_ramp<A>;
          visible = visible || !is_masked(ramp_values[a][b], true);
        });
        if (!any_of_block(tile, vote, visible)) continue;
        const RowTerms<A, P> terms(p, q);
        const bool some = differentiate_tile(tile, p, q, pairs.keys, terms, ramp_values, w, dt, sums);
        store_scores<A>(tile.gradients, dt);
        if (!any_of_block(tile, vote, some)) continue;
        A tile_sum = 0;
        for (int i = 0; i < side && thread < side; ++i)
          if (const int j = pairs.key(i, thread); j >= 0 && j < side) tile_sum += tile.gradients[i][j];
        bias_sum += tile_sum;
        const ReadRows<A> queries = rows_of_queries(p, p.query, q, p.head_size);
        add_weighted_rows(
            tile, columns,
            [&](int distance, int i) {
              const int j = pairs.key(i, distance);
              return j >= 0 && j < side ? tile.gradients[i][j] : A(0);
            },
            [&](int c, int width) { load_panel<A>(tile.right, queries, q.first, p.queries, column + c, width); }, sum);
      }
    }
    each_result<A>(sum, columns, [&](int, int row, int c, A value) {
      A* const total = to + (int64_t{row} * p.head_size + c);
      if (first_distance + row < p.distances) *total = (sequence > 0 ? *total : A(0)) + p.scale * value;
    });
  }
  allow_next();
  A* const bias = p.gradients.relative_bias;
  if (bias && column == 0 && thread < side && first_distance + thread < p.distances)
    bias[int64_t{head} * p.distances + first_distance + thread] = static_cast<A>(bias_sum);
}

// Gradients of relative embeddings: a block per distance adds the sums of the heads in order.
template <class A>
__global__ void __launch_bounds__(attention_threads)
    attention_add_heads_kernel(const __grid_constant__ AttentionProblem<A> p, const A* partials) {
  const int64_t distances = gridDim.x, distance = blockIdx.x;
  wait_for_earlier();
  allow_next();
  const WriteRows<A> gradient = rows_from(p, p.gradients.relative_embedding, distance, 0);
  for (int c = static_cast<int>(threadIdx.x); c < p.head_size; c += attention_threads) {
    A sum = 0;
    for (int head = 0; head < p.query_heads; ++head) sum += partials[(head * distances + distance) * p.head_size + c];
    gradient.set(0, c, sum);
  }
}

}  // namespace orrery::cuda
