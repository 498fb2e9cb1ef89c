// The kernels of attention's backward on tensor cores: see tensor_core.cuh, and backward.cuh for the
// derivatives.
#pragma once

#include "cuda/attention/tensor_core_tile.cuh"

namespace orrery::cuda {

// What belongs to a query: L and c, 0 where there is none.
struct TensorCoreRowTerms {
  float log_sum = 0, centre = 0;

  template <class P>
  __device__ static TensorCoreRowTerms of(const P& p, const QueryTile& q, int i) {
    if (!decltype(P::weights)::softmax || i >= p.queries) return {};
    return {p.log_sum[row_of(p, q) + i], p.inner[row_of(p, q) + i]};
  }
};

// Scores become weights with dropout, <do, v> becomes dt, both 0 where masked.  terms(bit): of the query of an
// element.
template <int Groups, class P, class Terms>
__device__ void differentiate_rows(const P& p, uint32_t visible, uint32_t kept, const Terms& terms,
                                   float (&s)[Groups][4], float (&g)[Groups][4]) {
#pragma unroll
  for (int bit = 0; bit < 4 * Groups; ++bit) {
    float& gradient = g[bit / 4][bit % 4];
    if (p.dropout.kept > 0) gradient *= has(kept, bit) ? p.dropout.kept : 0.f;
    gradient -= terms(bit).centre;
  }
  if (p.soft_cap > 0) {  // ds is linear in g, so its factor may come first
#pragma unroll
    for (int bit = 0; bit < 4 * Groups; ++bit) g[bit / 4][bit % 4] *= cap_slope(p, s[bit / 4][bit % 4]);
  }
#pragma unroll
  for (int bit = 0; bit < 4 * Groups; ++bit) {
    float &score = s[bit / 4][bit % 4], &gradient = g[bit / 4][bit % 4];
    const float w = unmasked_weight(p, score, terms(bit).log_sum, FastExponential{});
    gradient = has(visible, bit) ? score_gradient(p, 1.f, score, w, gradient) : 0.f;
    score = has(visible, bit) ? w : 0.f;
    if (p.dropout.kept > 0) score *= has(kept, bit) ? p.dropout.kept : 0.f;
  }
}

// Weights and dt of 16 rows of the warp, from the tile's own and walked operands: s of the first ones, g of the second.
// What is visible of them, or none where all are zeros.
template <bool KeysAreRows, int Size, class P, class Terms>
__device__ Cover differentiate_tile(const TensorCoreBackwardTile<Size>& tile, int buffer, int row, const P& p,
                                    const QueryTile& q, const KeyTile& keys, int query, int key, const Terms& terms,
                                    typename TensorCoreBackwardTile<Size>::Scores (&s)[1],
                                    typename TensorCoreBackwardTile<Size>::Scores (&g)[1]) {
  constexpr int walked = TensorCoreBackwardTile<Size>::walked_rows;
  uint32_t visible[1];
  const Cover cover = look<KeysAreRows, walked>(p, q, keys, query, key, visible);
  if (cover == Cover::none) return cover;
  multiply_rows(tile.own[0], row, tile.walked[buffer][0], s);
  if (!score_rows(p, visible, s)) return Cover::none;
  multiply_rows(tile.own[1], row, tile.walked[buffer][1], g);
  // The key is derived anew for each tile, for it would take registers from all of them.
  const uint32_t kept =
      p.dropout.kept > 0 ? ScorePlaces<KeysAreRows>{query, key}.kept(p, p.dropout.random_key.now(), q, walked / 2) : 0;
  differentiate_rows(p, visible[0], kept, terms, s[0], g[0]);
  return cover;
}

// ---- dq

template <class P, int Size>
__global__ void __launch_bounds__(tensor_core_attention_threads, 2)
    tensor_core_attention_backward_queries_kernel(const __grid_constant__ P p) {
  using Tile = TensorCoreBackwardTile<Size>;
  constexpr int owned = Tile::owned_rows, walked = Tile::walked_rows;
  Tile& tile = shared_memory<Tile>();
  const QueryTile q = query_tile(p, blockIdx.x, owned);
  const int row = static_cast<int>(threadIdx.x) / 32 * 16, own_query = q.first + row;
  TensorCoreRowTerms terms[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) terms[h] = TensorCoreRowTerms::of(p, q, own_query + ScorePlaces<false>::row(2 * h));
  typename Tile::Result sum[1] = {};

  fetch_rows(tile.own[0], rows_of_queries(p, p.query, q, p.head_size), q.first, p.queries, p.head_size);
  fetch_rows(tile.own[1], rows_of_queries(p, p.output_gradient, q, p.value_size), q.first, p.queries, p.value_size);
  const KeyWalk walk(p, q, owned, walked);
  const auto fetch = [&](int n, int buffer) { fetch_keys(tile, p, q, walk.tiles[n], buffer); };
  walk_along(walk, fetch, [&](int n, int buffer) {
    const KeyTile keys = walk.tiles[n];
    typename Tile::Scores w[1], dt[1];
    const auto of_row = [&](int bit) { return terms[bit / 2 % 2]; };
    const Cover cover = differentiate_tile<false>(tile, buffer, row, p, q, keys, own_query, keys.first, of_row, w, dt);
    if (cover == Cover::none) return;
    const auto& rows = tile.walked[buffer][0];
    add_weighted_rows(dt, rows, cover == Cover::some ? find_bad_rows(rows) : 0, sum);
  });
  const WriteRows<float> to = rows_of_queries(p, p.gradients.query, q, p.head_size);
  store_rows(to, own_query, p.queries, p.head_size, sum, [&](int, int) { return p.scale; });
}

// ---- dk and dv

// The tiles of queries, of all heads that read it, that a tile of keys walks along.
template <class P>
struct QueryWalk {
  const P& p;
  KeyTile keys;
  int sequence, first_head, side, begin, each, count;
  DocumentRange documents;

  __device__ QueryWalk(const P& problem, int own_sequence, int key_head, const KeyTile& own_keys, int key_count,
                       int queries)
      : p(problem), keys(own_keys), sequence(own_sequence), side(queries) {
    const int group = p.query_heads / p.key_heads;
    const Interval range = query_range(p, keys, key_count, side);
    first_head = key_head * group, begin = range.begin;
    each = keys.first < keys.end && range.begin < range.end ? (range.end - range.begin + side - 1) / side : 0;
    count = group * each;
    if (p.query_document_ids) documents = documents_of(p, sequence, keys, key_count);
  }
  __device__ QueryTile operator[](int n) const { return {sequence, first_head + n / each, begin + n % each * side}; }
  __device__ int next(int n) const {
    while (p.query_document_ids && n < count && !documents.meets(documents_of(p, (*this)[n], side))) ++n;
    return n;
  }
};

template <class P, int Size>
__global__ void __launch_bounds__(tensor_core_attention_threads, 2)
    tensor_core_attention_backward_keys_kernel(const __grid_constant__ P p) {
  using Tile = TensorCoreBackwardTile<Size>;
  constexpr int owned = Tile::owned_rows, walked = Tile::walked_rows;
  Tile& tile = shared_memory<Tile>();
  const int heads = p.batch * p.key_heads, head = static_cast<int>(blockIdx.x) % heads;
  const int sequence = head / p.key_heads, key_head = head % p.key_heads;
  const KeyTile keys = {false, static_cast<int>(blockIdx.x) / heads * owned, length_of(p, sequence)};
  const int row = static_cast<int>(threadIdx.x) / 32 * 16, own_key = keys.first + row;
  typename Tile::Result dk[1] = {}, dv[1] = {};

  const int64_t token = int64_t{sequence} * p.keys;
  const int64_t key_column = int64_t{key_head} * p.head_size, value_column = int64_t{key_head} * p.value_size;
  fetch_rows(tile.own[0], rows_from(p, p.key, token, key_column), keys.first, keys.end, p.head_size);
  fetch_rows(tile.own[1], rows_from(p, p.value, token, value_column), keys.first, keys.end, p.value_size);
  const QueryWalk walk(p, sequence, key_head, keys, owned, walked);
  const auto fetch = [&](int n, int buffer) {
    const QueryTile q = walk[n];
    fetch_rows(tile.walked[buffer][0], rows_of_queries(p, p.query, q, p.head_size), q.first, p.queries, p.head_size);
    fetch_rows(tile.walked[buffer][1], rows_of_queries(p, p.output_gradient, q, p.value_size), q.first, p.queries,
               p.value_size);
  };
  walk_along(walk, fetch, [&](int n, int buffer) {
    const QueryTile q = walk[n];
    typename Tile::Scores w[1], dt[1];
    const auto of_column = [&](int bit) {
      return TensorCoreRowTerms::of(p, q, q.first + ScorePlaces<true>::column(bit));
    };
    const Cover cover = differentiate_tile<true>(tile, buffer, row, p, q, keys, q.first, own_key, of_column, w, dt);
    if (cover == Cover::none) return;
    const auto &queries = tile.walked[buffer][0], &gradients = tile.walked[buffer][1];
    add_weighted_rows(w, gradients, cover == Cover::some ? find_bad_rows(gradients) : 0, dv);
    add_weighted_rows(dt, queries, cover == Cover::some ? find_bad_rows(queries) : 0, dk);
  });
  if (p.gradients.key.data)
    store_rows(rows_from(p, p.gradients.key, token, key_column), own_key, p.keys, p.head_size, dk,
               [&](int, int) { return p.scale; });
  if (p.gradients.value.data)
    store_rows(rows_from(p, p.gradients.value, token, value_column), own_key, p.keys, p.value_size, dv,
               [](int, int) { return 1.f; });
}

}  // namespace orrery::cuda
