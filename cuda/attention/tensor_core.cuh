// Attention for bf16 on tensor cores, with scores, statistics and sums in f32: softmax, and the weightings that are
// marked for it.  fits_tensor_cores() says which problems come here; attention.cuh does the others.
//
// A block of four warps owns rows and walks along others, tile by tile; a warp has 16 or 32 of the rows for itself:
//
//   forward            owns queries, walks keys      S = Q K^T                     O  += W V
//   backward, queries  owns queries, walks keys      S = Q K^T,    G = dO V^T      dQ += dT K attention_tensor_core_
//   backward, keys     owns keys, walks queries      S^T = K Q^T,  G^T = V dO^T    dV += W^T dO,     backward.cuh
//                                                                                  dK += dT^T Q
//
// So all are made of two products: of rows with rows, and of weights with rows.  The first leaves its result in the
// registers where the second wants its left operand: weights never leave a warp, and each gradient is added up by one
// warp in an order that the sizes alone decide.  Weights and dt are rounded to bf16 for the second product.
//
// Head sizes are padded with zeros to Size = 64 or 128.  Two tiles are in shared memory: one is used, cp.async brings
// the next.  One barrier per tile does both duties: the tile has arrived from all threads, and none still reads the
// buffer that is filled next.
//
// Tiles that sizes, masks and lengths leave out are never fetched, nor those whose documents cannot meet.  What is left
// is visible to a warp as a whole, or in part, and then told element by element; or not at all, which it passes over.
//
// A product adds 0 times the rows that are masked for a query, which would let NaN through.  Only where a tile is
// visible in part, its rows are looked at first: such a row becomes zeros, and a query that gives it a weight becomes
// NaN.
#pragma once

#include "cuda/attention/tensor_core_backward.cuh"

namespace orrery::cuda {

// ---- forward

namespace {  // like what it holds
template <int Blocks, int Size>
struct TensorCoreSoftmax {
  OnlineSoftmax<float> rows[Blocks][2];  // sum: a thread's own part

  // Scores become weights; what was read before shrinks to the new largest score.
  template <int Groups>
  __device__ void weigh(const uint32_t (&visible)[Blocks], float (&s)[Blocks][Groups][4],
                        float (&read)[Blocks][Size / 8][4]) {
#pragma unroll
    for (int block = 0; block < Blocks; ++block)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        OnlineSoftmax<float>& row = rows[block][h];
        float top = row.largest;
#pragma unroll
        for (int n = 0; n < 2 * Groups; ++n) {
          const float score = s[block][n / 2][2 * h + n % 2];
          if (has(visible[block], n / 2 * 4 + 2 * h + n % 2) && score > top) top = score;
        }
        const float shrink = row.raise(across_lanes(top, Larger{}, lanes_of_row), FastExponential{});
#pragma unroll
        for (int n = 0; n < 2 * Groups; ++n) {
          float& score = s[block][n / 2][2 * h + n % 2];
          score = row.weigh(has(visible[block], n / 2 * 4 + 2 * h + n % 2) ? 1.f : 0.f, score, FastExponential{});
        }
#pragma unroll
        for (int c = 0; c < Size / 8; ++c) read[block][c][2 * h] *= shrink, read[block][c][2 * h + 1] *= shrink;
      }
  }
};
}  // namespace

// F(s)
template <int Blocks, int Groups, class P>
__device__ void weigh_pointwise(const P& p, const uint32_t (&visible)[Blocks], float (&s)[Blocks][Groups][4]) {
#pragma unroll
  for (int block = 0; block < Blocks; ++block)
#pragma unroll
    for (int bit = 0; bit < 4 * Groups; ++bit) {
      float& score = s[block][bit / 4][bit % 4];
      score = has(visible[block], bit) ? p.weights.f.value(score) : 0.f;
    }
}
template <int Blocks, int Groups, class P>
__device__ void drop_weights(const P& p, const RandomKey& random, const QueryTile& q, int query, int key,
                             float (&w)[Blocks][Groups][4]) {
#pragma unroll
  for (int block = 0; block < Blocks; ++block) {
    const uint32_t kept = ScorePlaces<false>{query + 16 * block, key}.kept(p, random, q, 4 * Groups);
#pragma unroll
    for (int bit = 0; bit < 4 * Groups; ++bit) w[block][bit / 4][bit % 4] *= has(kept, bit) ? p.dropout.kept : 0.f;
  }
}

template <class P, int Size>
__global__ void __launch_bounds__(tensor_core_attention_threads, 2)
    tensor_core_attention_forward_kernel(const __grid_constant__ P p) {
  using Tile = TensorCoreForwardTile<Size>;
  constexpr int owned = Tile::owned_rows, walked = Tile::walked_rows, blocks = owned / 64;
  Tile& tile = shared_memory<Tile>();
  const QueryTile q = query_tile(p, blockIdx.x, owned);
  const int row = static_cast<int>(threadIdx.x) / 32 * 16 * blocks, own_query = q.first + row;
  const RandomKey random = p.dropout.random_key.now();
  TensorCoreSoftmax<blocks, Size> softmax;
  typename Tile::Result read[blocks] = {};

  fetch_rows(tile.own[0], rows_of_queries(p, p.query, q, p.head_size), q.first, p.queries, p.head_size);
  const KeyWalk walk(p, q, owned, walked);
  const auto fetch = [&](int n, int buffer) { fetch_keys(tile, p, q, walk.tiles[n], buffer); };
  walk_along(walk, fetch, [&](int n, int buffer) {
    const KeyTile keys = walk.tiles[n];
    uint32_t visible[blocks];
    const Cover cover = look<false, walked>(p, q, keys, own_query, keys.first, visible);
    if (cover == Cover::none) return;
    typename Tile::Scores s[blocks];
    multiply_rows(tile.own[0], row, tile.walked[buffer][0], s);
    if (!score_rows(p, visible, s)) return;
    if constexpr (decltype(P::weights)::softmax)
      softmax.weigh(visible, s, read);
    else
      weigh_pointwise(p, visible, s);
    if (p.dropout.kept > 0) drop_weights(p, random, q, own_query, keys.first, s);
    const auto& values = tile.walked[buffer][1];
    add_weighted_rows(s, values, cover == Cover::some ? find_bad_rows(values) : 0, read);
  });

  const WriteRows<float> to = rows_of_queries(p, p.output, q, p.value_size);
  store_rows(to, own_query, p.queries, p.value_size, read, [&](int block, int h) {
    if constexpr (decltype(P::weights)::softmax) {
      const OnlineSoftmax<float>& state = softmax.rows[block][h];
      const float sum = across_lanes(state.sum, Plus{}, lanes_of_row);
      const int i = own_query + 16 * block + ScorePlaces<false>::row(2 * h);
      if (i < p.queries && lane_of_warp() % lanes_of_row == 0)
        p.log_sum[row_of(p, q) + i] = state.log_sum(sum, Logarithm{});
      return sum == 0 ? 0.f : 1 / sum;
    } else {
      return 1.f;
    }
  });
}

// ---- what is called

// What comes here: bf16 and a weighting that is marked, and of these all problems without slots, spans, terms of the
// distance and gradients of statistics, whose heads are not too large.
template <class A, class Weights>
inline constexpr bool tensor_core_weighting = sizeof(A) == sizeof(float) && Weights::tensor_cores;

inline bool fits_tensor_cores(const AttentionProblem<float>& p) {
  const bool plain = p.slots == 0 && !p.span && !p.relative_bias && !p.relative_embedding.data &&
                     !p.statistics_gradients.sum_gradient && !p.statistics_gradients.entropy_gradient;
  return p.is_bf16 && plain && maximum(p.head_size, p.value_size) <= tensor_core_attention_size;
}

// run<Size>() with the head size that the problem is padded to.
template <class P, class Run>
void with_tensor_core_size(const P& p, const Run& run) {
  if (maximum(p.head_size, p.value_size) <= 64) return run.template operator()<64>();
  run.template operator()<tensor_core_attention_size>();
}
template <class Tile>
Launch tensor_core_attention_launch(const char* name, int64_t heads, int64_t tokens, int line = __builtin_LINE()) {
  const int64_t blocks = heads * ((tokens + Tile::owned_rows - 1) / Tile::owned_rows);
  return {name, static_cast<unsigned>(blocks), tensor_core_attention_threads, sizeof(Tile), __builtin_FILE(), line};
}

template <class P>
void tensor_core_attention_forward(const P& p) {
  with_tensor_core_size(p, [&]<int Size>() {
    const Launch to = tensor_core_attention_launch<TensorCoreForwardTile<Size>>(
        "attention: tensor core forward", int64_t{p.batch} * p.query_heads, p.queries);
    launch(to, tensor_core_attention_forward_kernel<P, Size>, p);
  });
}

template <class P>
void tensor_core_attention_backward(const P& p) {
  with_tensor_core_size(p, [&]<int Size>() {
    using Tile = TensorCoreBackwardTile<Size>;
    const int64_t query_heads = int64_t{p.batch} * p.query_heads, key_heads = int64_t{p.batch} * p.key_heads;
    if (p.gradients.query.data && query_heads * p.queries > 0)
      launch(tensor_core_attention_launch<Tile>("attention: tensor core backward of queries", query_heads, p.queries),
             tensor_core_attention_backward_queries_kernel<P, Size>, p);
    if ((p.gradients.key.data || p.gradients.value.data) && key_heads * p.keys > 0)
      launch(tensor_core_attention_launch<Tile>("attention: tensor core backward of keys", key_heads, p.keys),
             tensor_core_attention_backward_keys_kernel<P, Size>, p);
  });
}

}  // namespace orrery::cuda
