// Tiles of side x side scores, for attention kernels without tensor cores.
//
// A block has 256 threads, a grid of 16 x 16. Thread (r, c) holds the elements (r + 16 a, c + 16 b)
// of a tile in registers: rows are queries, columns are keys. So the 16 threads of a row are half a
// warp, and a maximum or sum per query takes four shuffles and no barrier.
//
// Operands pass through shared memory in panels: `depth` columns of the rows of a tile. Loops over
// panels support any head size without padding. A block holds at most `chunk` columns of a result
// in registers; for each further chunk of a wider head another block computes the scores again.
//
// Only two functions have barriers. `refill` has one before the panels are written (all threads
// have read the old ones) and one after (all have written). `any_of_block` has one between writes
// and reads of its flags; two sets of flags alternate, so the next vote may begin while this one is
// read. A tile of weights is written before a vote and read after it; the next tile's vote on
// visibility is between these reads and the next writes.
#pragma once

#include <cstdint>

#include "cuda/attention/formula.cuh"
#include "cuda/loops/lanes.cuh"

namespace orrery::cuda {

inline constexpr int attention_threads = 256;

template <class A>
struct AttentionTile {
  static constexpr int side = sizeof(A) == 4 ? 64 : 32;
  static constexpr int each = side / 16;                   // rows and columns of a tile per thread
  static constexpr int depth = 32;                         // columns of a panel
  static constexpr int chunk = 128, columns = chunk / 16;  // columns of a result per block, per thread

  using Panel = A[side][depth + 1];
  using Scores = A[side][side + 1];
  using Registers = A[each][each];
  using Result = A[each][columns];

  Panel left, right;
  A distances[2 * side][depth + 1];
  Scores weights, gradients;
  unsigned votes[2][attention_threads / 32];
};
inline constexpr int64_t attention_shared_memory = 99 * 1024;  // bytes per block on every GPU from sm_80 on
static_assert(sizeof(AttentionTile<float>) <= attention_shared_memory &&
              sizeof(AttentionTile<double>) <= attention_shared_memory);

__device__ inline int tile_row() { return static_cast<int>(threadIdx.x) / 16; }
__device__ inline int tile_column() { return static_cast<int>(threadIdx.x) % 16; }

// ---- barriers

template <class Fill>
__device__ void refill(const Fill& fill) {
  __syncthreads();  // all have read the old data
  fill();
  __syncthreads();  // all have written
}

template <class A>
__device__ bool any_of_block(AttentionTile<A>& tile, int& vote, bool mine) {
  unsigned* const votes = tile.votes[vote++ % 2];
  const unsigned ballot = __ballot_sync(~0u, mine);
  if (threadIdx.x % 32 == 0) votes[threadIdx.x / 32] = ballot;
  __syncthreads();
  unsigned all = 0;
  for (int warp = 0; warp < attention_threads / 32; ++warp) all |= votes[warp];
  return all != 0;
}

// ---- the mask of this thread's elements

// Calls body(a, b, i, j) for this thread's elements.
template <class A, class Body>
__device__ void each_element(const QueryTile& q, const KeyTile& keys, const Body& body) {
#pragma unroll
  for (int a = 0; a < AttentionTile<A>::each; ++a)
#pragma unroll
    for (int b = 0; b < AttentionTile<A>::each; ++b)
      body(a, b, q.first + tile_row() + 16 * a, keys.first + tile_column() + 16 * b);
}

// Computes r; returns true if any element of this thread has a score.
template <class A, class P>
__device__ bool compute_ramp_values(const P& p, const QueryTile& q, const KeyTile& keys, bool with_far_end,
                                    typename AttentionTile<A>::Registers& ramp_values) {
  bool some = false;
  each_element<A>(q, keys, [&](int a, int b, int i, int j) {
    ramp_values[a][b] = ramp_value<A>(p, q, keys, i, j);
    some = some || !is_masked(ramp_values[a][b], with_far_end);
  });
  return some;
}

// ---- operands

// Loads rows [first, first + side), `columns` columns from `column` on; zeros outside [0, end).
template <class A>
__device__ void load_panel(typename AttentionTile<A>::Panel& panel, const ReadRows<A>& rows, int first, int end,
                           int column, int columns) {
  constexpr int side = AttentionTile<A>::side, depth = AttentionTile<A>::depth;
  const int c = static_cast<int>(threadIdx.x) % depth;
  if (c >= columns) return;
#pragma unroll 4
  for (int r = static_cast<int>(threadIdx.x) / depth; r < side; r += attention_threads / depth) {
    const int row = first + r;
    panel[r][c] = row >= 0 && row < end ? rows.at(row, column + c) : A(0);
  }
}

// Loads the relative embeddings of a tile: row n has x = (x of row 0 and the last column) + n.
template <class A, class P>
__device__ void load_distances(AttentionTile<A>& tile, const P& p, const QueryTile& q, const KeyTile& keys, int column,
                               int columns) {
  constexpr int side = AttentionTile<A>::side, depth = AttentionTile<A>::depth;
  const int c = static_cast<int>(threadIdx.x) % depth;
  const int first = q.first + p.query_offset - (keys.first + side - 1);
  const ReadRows<A> embeddings = rows_from(p, p.relative_embedding, 0, column);
  if (c >= columns) return;
#pragma unroll 4
  for (int r = static_cast<int>(threadIdx.x) / depth; r < 2 * side - 1; r += attention_threads / depth) {
    const int distance = first + r < 0 ? -(first + r) : first + r;
    tile.distances[r][c] = distance < p.distances ? embeddings.at(distance, c) : A(0);
  }
}

// ---- products

// sum += the inner products of rows of `left` and of `right`, over one panel
template <class A>
__device__ void multiply_panels(const AttentionTile<A>& tile, int columns, typename AttentionTile<A>::Registers& sum) {
  constexpr int each = AttentionTile<A>::each;
#pragma unroll 4
  for (int d = 0; d < columns; ++d) {
    A left[each], right[each];
#pragma unroll
    for (int a = 0; a < each; ++a) {
      left[a] = tile.left[tile_row() + 16 * a][d];
      right[a] = tile.right[tile_column() + 16 * a][d];
    }
#pragma unroll
    for (int a = 0; a < each; ++a)
#pragma unroll
      for (int b = 0; b < each; ++b) sum[a][b] += left[a] * right[b];
  }
}
// sum += <q_i, p_|x|>: the distances of a thread's elements are 16 apart
template <class A>
__device__ void multiply_distances(const AttentionTile<A>& tile, int columns,
                                   typename AttentionTile<A>::Registers& sum) {
  constexpr int each = AttentionTile<A>::each, side = AttentionTile<A>::side;
  const int nearest = tile_row() - tile_column() + side - 1;
#pragma unroll 2
  for (int d = 0; d < columns; ++d) {
    A left[each], distances[2 * each - 1];
#pragma unroll
    for (int a = 0; a < each; ++a) left[a] = tile.left[tile_row() + 16 * a][d];
#pragma unroll
    for (int n = 0; n < 2 * each - 1; ++n) distances[n] = tile.distances[nearest + 16 * (n - each + 1)][d];
#pragma unroll
    for (int a = 0; a < each; ++a)
#pragma unroll
      for (int b = 0; b < each; ++b) sum[a][b] += left[a] * distances[a - b + each - 1];
  }
}

// Computes s of a tile; masked scores become 0.
template <class A, class P>
__device__ void compute_scores(AttentionTile<A>& tile, const P& p, const QueryTile& q, const KeyTile& keys,
                               const typename AttentionTile<A>::Registers& ramp_values, bool with_far_end,
                               typename AttentionTile<A>::Registers& s) {
  constexpr int depth = AttentionTile<A>::depth;
  const ReadRows<A> queries = rows_of_queries(p, p.query, q, p.head_size);
  const ReadRows<A> rows = rows_of_keys(p, p.key, p.slot_key, q, keys, p.head_size);
  const bool positioned = p.relative_embedding.data && !keys.slots;
  each_element<A>(q, keys, [&](int a, int b, int, int) { s[a][b] = 0; });
  for (int column = 0; column < p.head_size; column += depth) {
    const int columns = minimum(depth, p.head_size - column);
    refill([&] {
      load_panel<A>(tile.left, queries, q.first, p.queries, column, columns);
      load_panel<A>(tile.right, rows, keys.first, keys.end, column, columns);
      if (positioned) load_distances(tile, p, q, keys, column, columns);
    });
    multiply_panels(tile, columns, s);
    if (positioned) multiply_distances(tile, columns, s);
  }
  each_element<A>(q, keys, [&](int a, int b, int i, int j) {
    if (is_masked(ramp_values[a][b], with_far_end)) {
      s[a][b] = 0;
      return;
    }
    A t = p.scale * s[a][b];
    const int x = i + p.query_offset - j;
    if (p.relative_bias && !keys.slots) t += p.relative_bias[int64_t{q.head} * p.distances + (x < 0 ? -x : x)];
    s[a][b] = capped(p, t);
  });
}

// Stores this thread's elements of a tile; all threads may read them after the next refill.
template <class A>
__device__ void store_scores(typename AttentionTile<A>::Scores& scores,
                             const typename AttentionTile<A>::Registers& values) {
#pragma unroll
  for (int a = 0; a < AttentionTile<A>::each; ++a)
#pragma unroll
    for (int b = 0; b < AttentionTile<A>::each; ++b) scores[tile_row() + 16 * a][tile_column() + 16 * b] = values[a][b];
}

// Adds weight(row, k) times row k of the right panel to this thread's elements of the result. Zero
// weights are skipped, so NaN in masked rows has no effect. `stage(column, columns)` fills panels.
// Tiles are summed separately: the error of one long sum would grow with the root of its length.
template <class A, class Weight, class Stage>
__device__ void add_weighted_rows(AttentionTile<A>& tile, int columns, const Weight& weight, const Stage& stage,
                                  typename AttentionTile<A>::Result& sum) {
  constexpr int side = AttentionTile<A>::side, each = AttentionTile<A>::each, depth = AttentionTile<A>::depth;
#pragma unroll
  for (int panel = 0; panel < AttentionTile<A>::chunk / depth; ++panel) {
    if (panel * depth >= columns) break;
    refill([&] { stage(panel * depth, minimum(depth, columns - panel * depth)); });
    A tile_sum[each][2] = {};
#pragma unroll 4
    for (int k = 0; k < side; ++k) {
      const A low = tile.right[k][tile_column()], high = tile.right[k][tile_column() + 16];
#pragma unroll
      for (int a = 0; a < each; ++a)
        if (const A w = weight(tile_row() + 16 * a, k); w != 0) tile_sum[a][0] += w * low, tile_sum[a][1] += w * high;
    }
#pragma unroll
    for (int a = 0; a < each; ++a) sum[a][2 * panel] += tile_sum[a][0], sum[a][2 * panel + 1] += tile_sum[a][1];
  }
}

// Calls body(a, row of the tile, column of the chunk, value) for this thread's part of a result.
template <class A, class Body>
__device__ void each_result(const typename AttentionTile<A>::Result& sum, int columns, const Body& body) {
#pragma unroll
  for (int a = 0; a < AttentionTile<A>::each; ++a)
#pragma unroll
    for (int e = 0; e < AttentionTile<A>::columns; ++e)
      if (const int column = tile_column() + 16 * e; column < columns) body(a, tile_row() + 16 * a, column, sum[a][e]);
}

// Folds over the 16 threads of a row; all return the same bits.
template <class A>
__device__ A sum_of_row(A x) {
  return across_lanes(x, Plus{}, 16);
}
template <class A>
__device__ A maximum_of_row(A x) {
  return across_lanes(x, Larger{}, 16);
}

}  // namespace orrery::cuda
