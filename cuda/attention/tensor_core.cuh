// bf16 attention on tensor cores, with f32 scores, statistics and sums, for softmax and weightings
// with `tensor_cores`. fits_tensor_cores() selects the problems; attention.cuh computes the others.
//
// A block of four warps owns rows and loops over (walks) other rows, tile by tile; each warp owns
// 32 rows, or 16 if registers are too few:
//
//   forward            owns queries, walks keys      S = Q K^T                     O  += W V
//   backward, queries  owns queries, walks keys      G = dO V^T,   S = Q K^T       dQ += dT K
//   backward, keys     owns keys, walks queries      S^T = K Q^T,  G^T = V dO^T    dV += W^T dO,
//                                                                                  dK += dT^T Q
//
// So all kernels consist of two products: rows with rows, and weights with rows. The first leaves
// its result in the registers of the second's left operand, so weights never leave a warp. One warp
// sums each gradient, in an order that depends on the sizes alone. Weights and dt are rounded to
// bf16 for the second product. One kernel for all gradients would save two of seven products, but
// write and read dq in parts: slower, 2.3 KB per query and head at 1,024 tokens and heads of 64.
//
// Head sizes are padded with zeros to Size = 64 or 128. While one operand is used, cp.async
// copies the next: keys and values alternate, one buffer each, or pairs of queries and gradients
// have two buffers. At each barrier the next operand is complete and no thread reads the buffer
// that is filled next.
//
// Tiles that sizes, masks, lengths or disjoint documents mask entirely are never fetched. Others
// are visible to a warp fully (no test per element), partly (a bit mask) or not (skipped). Rare
// options (soft cap, dropout, a scale not above zero) have separate branches.
//
// Weights of homogeneous functions are computed without the scale. F(a s) = a F(s), a > 0, implies
// sum_j F(a s_j) v_j = a sum_j F(s_j) v_j, with one factor for a row, and F'(a s) = F'(s).
//
// A product adds 0 times the rows that are masked for a query, and 0 times NaN is NaN. So rows of
// partly visible tiles are checked first: rows that are not finite count as zeros, and a query with
// a nonzero weight for one becomes NaN.
#pragma once

#include "cuda/attention/warp_group_forward.cuh"
#include "cuda/attention/warp_group_keys.cuh"
#include "cuda/attention/warp_group_queries.cuh"

namespace orrery::cuda {

// ---- forward

template <class P, int Size>
__global__ void __launch_bounds__(tensor_core_attention_threads, 2)
    tensor_core_attention_forward_kernel(const __grid_constant__ P p) {
  using Tile = TensorCoreForwardTile<Size>;
  constexpr bool softmax = decltype(P::weights)::softmax;
  constexpr int owned = Tile::owned_rows, walked = Tile::walked_rows, blocks = owned / 64;
  Tile& tile = shared_memory<Tile>();
  const QueryTile q = query_tile(p, blockIdx.x, owned);
  const int row = warp_of_block() * 16 * blocks, own_query = q.first + row;
  const OperandOffsets<Size> offsets(row);
  wait_for_earlier();
  const RandomKey rng_key = p.dropout.rng_key.load();
  TensorCoreSoftmax<blocks, Size> state;
  typename Tile::Result output[blocks] = {};
  typename Tile::Weights weights[blocks];  // weights of one tile
  Coverage coverage = Coverage::none;

  RowSource<Size, 1>({rows_of_queries(p, p.query, q, p.head_size)}, {p.head_size})
      .fetch(0, tile.own, q.first, p.queries);
  const RowSource<Size, 2> rows = source_of_keys<Size>(p, q.sequence, kv_head(p, q));
  const KeyWalk walk(p, q, owned, walked);
  const WarpVisibility<false, walked, blocks, P> visibility(p, own_query, length_of(p, q.sequence));
  const RareOptions options(p);
  [[maybe_unused]] const auto& f = function_of<float>(p, q);
  const auto weigh = [&](const KeyTile& keys) {
    uint32_t visible[blocks];
    coverage = visibility.find_visible(p, q, keys, visible);
    if (coverage == Coverage::none) return;
    typename Tile::Scores s[blocks];
    multiply_rows(offsets, tile.own, tile.keys, s);
    const float factor = score_rows(p, options, s);
    if constexpr (softmax) {
      if (coverage == Coverage::some) masked_fill(visible, OnlineSoftmax<float>::lowest, s);
      state.weigh(factor, s, output);
    } else {
      each_score(s, [&](int block, int bit) {
        float& score = s[block][bit / 4][bit % 4];
        score = f.value(factor * score);
      });
      if (coverage == Coverage::some) masked_fill(visible, 0.f, s);
    }
    const bool some = round_weights(s, weights);
    if (!softmax && !some) coverage = Coverage::none;  // F may be 0 for all scores below zero
    if (options.dropout()) {
      uint32_t kept[blocks];
      visibility.find_keep_masks(p, rng_key, q, keys, kept);
      drop_weights(kept, weights);
    }
  };
  walk_in_turns(
      walk, [&](const KeyTile& keys) { rows.fetch(0, tile.keys, keys.first, keys.end); },
      [&](const KeyTile& keys) { rows.fetch(1, tile.values, keys.first, keys.end); }, weigh,
      [&](const KeyTile&) {
        if (coverage != Coverage::none) add_weighted_rows(offsets, weights, tile.values, coverage, output);
      });

  allow_next();
  store_output(p, options, q, own_query, state, output);
}

// ---- entry points

// Supported: bf16 and weightings with `tensor_cores`, without slots, spans, relative-position terms
// and gradients of statistics, for heads up to tensor_core_attention_size.
template <class A, class Weights>
inline constexpr bool tensor_core_weighting = sizeof(A) == sizeof(float) && Weights::tensor_cores;

inline bool fits_tensor_cores(const AttentionProblem<float>& p) {
  const bool plain = p.slots == 0 && !p.span && !p.relative_bias && !p.relative_embedding.data &&
                     !p.statistics_gradients.sum_gradient && !p.statistics_gradients.entropy_gradient;
  return p.is_bf16 && plain && maximum(p.head_size, p.value_size) <= tensor_core_attention_size;
}

// Calls run<Size>() with the padded head size of the problem.
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
  const auto maps = attention_maps(p, true);
  with_tensor_core_size(p, [&]<int Size>() {
    if (maps)
      return launch(group_attention_launch<GroupForwardTiles<Size>>("attention: forward by warp groups",
                                                                    query_tiles_of(p)),
                    warp_group_attention_forward_kernel<P, Size>, p, *maps);
    const Launch to = tensor_core_attention_launch<TensorCoreForwardTile<Size>>(
        "attention: tensor core forward", int64_t{p.batch} * p.query_heads, p.queries);
    launch(to, tensor_core_attention_forward_kernel<P, Size>, p);
  });
}

template <class P>
void tensor_core_attention_backward(const P& p) {
  const int64_t rows = decltype(P::weights)::softmax ? int64_t{p.batch} * p.query_heads * rows_of_terms(p) : 0;
  const Workspace workspace(rows * static_cast<int64_t>(sizeof(TensorCoreRowTerms)));
  auto* const terms = static_cast<TensorCoreRowTerms*>(workspace.data());
  const auto maps = attention_maps(p);
  if (rows > 0 && !(maps && p.gradients.query.data)) {  // else the warp groups of queries write them
    const auto heads = static_cast<unsigned>(p.batch * p.query_heads);
    const auto blocks = static_cast<unsigned>(rows_of_terms(p) / queries_of_terms);
    launch({"attention: inner products", dim3(heads, blocks), attention_threads}, tensor_core_attention_terms_kernel<P>,
           p, terms);
  }
  with_tensor_core_size(p, [&]<int Size>() {
    using OfQueries = TensorCoreQueriesTile<Size>;
    using OfKeys = TensorCoreKeysTile<Size>;
    const int64_t query_heads = int64_t{p.batch} * p.query_heads, kv_heads = int64_t{p.batch} * p.kv_heads;
    const int64_t owned = maps ? group_block_rows : OfQueries::owned_rows,
                  warps = (p.queries + owned - 1) / owned * (maps ? group_block_rows / 16 : warps_of_queries);
    const Workspace of_warps(p.gradients.parameters ? parameters_of<P> * query_heads * warps * 4 : 0);
    auto* const parameters = p.gradients.parameters ? static_cast<float*>(of_warps.data()) : nullptr;
    if (p.gradients.query.data && maps)
      launch(group_attention_launch<GroupQueriesTiles<Size>>("attention: backward of queries by warp groups",
                                                             query_tiles_of(p)),
             warp_group_attention_backward_queries_kernel<P, Size>, p, *maps, terms, parameters);
    else if (p.gradients.query.data && query_heads * p.queries > 0)
      launch(
          tensor_core_attention_launch<OfQueries>("attention: tensor core backward of queries", query_heads, p.queries),
          tensor_core_attention_backward_queries_kernel<P, Size>, p, terms, parameters);
    if (parameters)
      add_rows_of_heads<float>("attention: parameters", p, parameters, warps, parameters_of<P>, p.gradients.parameters);
    if (!p.gradients.key.data && !p.gradients.value.data) return;
    if (maps)
      launch(group_attention_launch<GroupKeysTiles<Size>>("attention: backward of keys by warp groups",
                                                          key_tiles_of(p)),
             warp_group_attention_backward_keys_kernel<P, Size>, p, *maps, terms);
    else if (kv_heads * p.keys > 0)
      launch(tensor_core_attention_launch<OfKeys>("attention: tensor core backward of keys", kv_heads, p.keys),
             tensor_core_attention_backward_keys_kernel<P, Size>, p, terms);
  });
}

}  // namespace orrery::cuda
