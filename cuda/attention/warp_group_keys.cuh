// dk and dv of attention by warp groups: see warp_group_walk.cuh.
#pragma once

#include "cuda/attention/warp_group_walk.cuh"

namespace orrery::cuda {

template <int Size>
using GroupKeysTiles = GroupTiles<Size, Size == 64 ? 4 : 3, true>;

template <class P>
HOST_DEVICE int key_tiles_of(const P& p) {
  return p.batch * p.kv_heads * ((p.keys + group_block_rows - 1) / group_block_rows);
}
// A block's tile of keys of one head.
struct GroupKeys {
  int sequence, head;
  KeyTile keys;

  template <class P>
  __device__ GroupKeys(const P& p, int tile) {
    const int heads = p.batch * p.kv_heads;
    sequence = tile % heads / p.kv_heads, head = tile % p.kv_heads;
    keys = {false, tile / heads * group_block_rows, length_of(p, sequence)};
  }
};

// The values of walked queries, read from shared memory at each use: there are no registers for them.
struct TermsOfGroupColumns {
  const TensorCoreRowTerms (&row)[group_rows];

  __device__ auto minus_centres() const {
    return [this](int, int bit) { return row[ScoreLayout<true>::column(bit)].minus_centre; };
  }
  __device__ auto log_sums() const {
    return [this](int, int bit) { return row[ScoreLayout<true>::column(bit)].log_sum; };
  }
};

// By a warp of group 0.
template <int Size, class P>
__device__ void copy_queries(GroupKeysTiles<Size>& tiles, const P& p, const AttentionMaps& maps,
                             const TensorCoreRowTerms* terms) {
  TileCopies copies(tiles, elected());
  for (int n = static_cast<int>(blockIdx.x); n < key_tiles_of(p); n += static_cast<int>(gridDim.x)) {
    const GroupKeys own(p, n);
    copies.load_own(own.sequence, own.head, own.keys.first, maps.key, maps.value);
    const auto next_head = [] {};
    const QueryTile first = {own.sequence, own.head * (p.query_heads / p.kv_heads), 0};
    const QueryWalk walk(p, first, own.keys, group_block_rows, group_rows, next_head);
    for (QueryTile q = walk.first(); walk.has(q); q = walk.next(q))
      if (!walk.is_hidden(q))
        copies.load_walked(maps.query, maps.output_gradient, q.sequence, q.head, q.first, q.head,
                           terms ? terms + row_of_terms(p, q) + q.first : nullptr);
    copies.end();
  }
}

// By groups 1 and 2; `group`: 0 or 1.
template <int Size, class P>
__device__ void sum_key_gradients(GroupKeysTiles<Size>& tiles, const P& p, int group) {
  using Own = OwnRows<Size>;
  constexpr bool in_flight = Size == 64;  // products over the next tile; there are no registers for it with longer rows
  const int of_warp = warp_of_block() % 4 * 16;
  const bool is_leader = threadIdx.x % group_threads == 0;
  const RareOptions options(p);
  const SharedOperand of_stages = tiles.walked[0][0].operand();
  PipelineStage<GroupKeysTiles<Size>::stages> stage;
  unsigned parity = 0;
  for (int n = static_cast<int>(blockIdx.x); n < key_tiles_of(p); n += static_cast<int>(gridDim.x), parity ^= 1) {
    const GroupKeys block(p, n);
    const int own_key = block.keys.first + group * group_rows;
    const WarpVisibility<true, group_rows, 1, P, group_rows> visibility(p, own_key, block.keys.end, of_warp);
    float dk[1][Size / 8][4] = {}, dv[1][Size / 8][4] = {};
    int last = -1;  // the stage whose products may be in flight
    const auto finish = [&] {
      group_products_wait<0>();
      fence_sums(dv[0]), fence_sums(dk[0]);
      if (is_leader && last >= 0) tiles.empty[last].arrive();
      last = -1;
    };
    tiles.own_full.wait(parity);
    const Own keys(tiles.own[0][group], of_warp), values(tiles.own[1][group], of_warp);
    const auto release_own = [&] {
      if (lane_of_warp() == 0) tiles.own_empty.arrive();
    };
    if constexpr (Own::in_registers) release_own();
    for (;; stage.advance()) {
      tiles.full[stage.index].wait(stage.parity);
      const auto place = tiles.place[stage.index];
      const QueryTile q = {block.sequence, place.head, place.first};
      if (q.first < 0) break;
      TileMasks<1> masks;
      masks.find(visibility, p, options, q, block.keys);
      if (masks.coverage == Coverage::none) {
        finish();
        if (is_leader) tiles.empty[stage.index].arrive();
        continue;
      }
      const auto& walked = tiles.walked[stage.index];
      const int of_stage = stage.index * static_cast<int>(sizeof walked);
      float s[1][8][4], g[1][8][4];
      group_products_begin();
      keys.start_product(of_stages.farther(of_stage), s);
      values.start_product(of_stages.farther(of_stage + GroupTile<Size>::bytes), g);
      group_products_commit();
      group_products_wait<0>();  // also for the products of the stage before
      fence_sums(s[0]), fence_sums(g[0]);
      if (is_leader && last >= 0) tiles.empty[last].arrive();
      last = stage.index;
      const bool check = masks.coverage == Coverage::some;
      const uint64_t bad_queries = check ? find_bad_rows(s, walked[0]) : 0;
      const uint64_t bad_gradients = check ? find_bad_rows(g, walked[1]) : 0;
      const float factor = score_rows(p, options, s);
      const TermsOfGroupColumns terms = {tiles.terms[decltype(P::weights)::softmax ? stage.index : 0]};
      centre_gradients(p, options, masks.kept, terms, g);
      uint32_t w[1][4][4], dt[1][4][4];
      differentiate_tile(p, function_of<float>(p, q), options, factor, masks, terms, s, g, 0, w, dt);
      int from_queries = of_stage, from_gradients = of_stage + GroupTile<Size>::bytes;
      if (bad_queries | bad_gradients) {
        separate_bad_rows(walked[0], bad_queries, group, tiles.finite[0][group], dt);
        separate_bad_rows(walked[1], bad_gradients, group, tiles.finite[1][group], w);
        from_queries = tiles.finite_from_stages(0, group), from_gradients = tiles.finite_from_stages(1, group);
      }
      fence_sums(dv[0]), fence_sums(dk[0]);
      group_products_begin();
      start_weights_product<Size>(w, of_stages.farther(from_gradients), dv);
      start_weights_product<Size>(dt, of_stages.farther(from_queries), dk);
      group_products_commit();
      if constexpr (!in_flight) finish();
    }
    finish();
    if constexpr (!Own::in_registers) release_own();
    if (is_leader) tiles.empty[stage.index].arrive();
    stage.advance();
    const int own_row = own_key + of_warp;
    if (p.gradients.key.data)
      store_rows(rows_from(p, p.gradients.key, int64_t{block.sequence} * p.keys, int64_t{block.head} * p.head_size),
                 own_row, p.keys, p.head_size, dk, [&](int, int) { return p.scale; });
    if (p.gradients.value.data)
      store_rows(rows_from(p, p.gradients.value, int64_t{block.sequence} * p.keys, int64_t{block.head} * p.value_size),
                 own_row, p.keys, p.value_size, dv, [&](int, int) { return factor_of_weights(p, options); });
  }
}

template <class P, int Size>
__global__ void __launch_bounds__(group_attention_threads, 1)
    warp_group_attention_backward_keys_kernel(const __grid_constant__ P p, const __grid_constant__ AttentionMaps maps,
                                              const TensorCoreRowTerms* terms) {
  run_groups<GroupKeysTiles<Size>, Size == 64 ? 40 : 24, Size == 64 ? 232 : 240>(
      [&](auto& tiles) { copy_queries(tiles, p, maps, terms); },
      [&](auto& tiles, int group) { sum_key_gradients(tiles, p, group); });
}

}  // namespace orrery::cuda
