// dq of attention by warp groups: see warp_group_walk.cuh.
#pragma once

#include "cuda/attention/warp_group_walk.cuh"

namespace orrery::cuda {

template <int Size>
using GroupQueriesTiles = GroupTiles<Size, 4, false>;

// The values of a lane's two queries.
struct TermsOfGroupRows {
  float log_sum[2], minus_centre[2];

  __device__ auto minus_centres() const {
    return [this](int, int bit) { return minus_centre[bit / 2 % 2]; };
  }
  __device__ auto log_sums() const {
    return [this](int, int bit) { return log_sum[bit / 2 % 2]; };
  }
};

// Outputs and log-sums of a warp's 16 queries, and the terms computed from them. They are loaded a tile ahead, because
// nothing else hides their latency. Eight lanes share a query: tensor_core_attention_terms_kernel sums c in that order.
template <int Size, class P>
struct OutputsOfWarp {
  static constexpr int chunks = Size / (lanes_of_terms * elements_of_terms);
  ElementsOfTerms output[4][chunks];
  float log_sum[2];

  __device__ static int row(int n) { return n / 2 * 8 + lane_of_warp() / lanes_of_terms * 2 + n % 2; }
  __device__ static int chunk(int k) { return k * lanes_of_terms + lane_of_warp() % lanes_of_terms; }

  // own: the warp's first query
  __device__ void load(const P& p, const QueryTile& q, int own) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int64_t token = int64_t{q.sequence} * p.queries + own + row(n);
      const bf16* const from =
          reinterpret_cast<const bf16*>(p.output.data) + token * p.output.stride + int64_t{q.head} * p.value_size;
#pragma unroll
      for (int k = 0; k < chunks; ++k) {
        const int column = chunk(k) * elements_of_terms;
        output[n][k] = own + row(n) < p.queries && column < p.value_size
                           ? ElementsOfTerms::load(from, column, p.value_size, true)
                           : ElementsOfTerms{};
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int i = own + ScoreLayout<false>::row(2 * h);
      log_sum[h] = i < p.queries ? p.log_sum[row_of(p, q) + i] : 0;
    }
  }
  // Returns the terms of a lane's two queries, and writes those of all for the kernel of keys.
  __device__ TermsOfGroupRows terms(const P& p, const QueryTile& q, int own, const GroupTile<Size>& gradients,
                                    int of_warp, TensorCoreRowTerms* all) const {
    float inner[4] = {};
#pragma unroll
    for (int n = 0; n < 4; ++n) {
#pragma unroll
      for (int k = 0; k < chunks; ++k)
        inner[n] += output[n][k].product(
            *static_cast<const ElementsOfTerms*>(gradients.chunk(of_warp + row(n), chunk(k))));
      inner[n] = across_lanes(inner[n], Plus{}, lanes_of_terms);
    }
    TermsOfGroupRows terms = {};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int i = own + ScoreLayout<false>::row(2 * h);
      const float c = lane_of_warp() / 4 % 2 ? inner[2 * h + 1] : inner[2 * h];
      if (i < p.queries)
        terms.log_sum[h] = log2_of_e * log_sum_or_infinity(log_sum[h]), terms.minus_centre[h] = -c;
      if (lane_of_warp() % lanes_of_row == 0 && i < rows_of_terms(p))
        all[row_of_terms(p, q) + i] = {terms.log_sum[h], terms.minus_centre[h]};
    }
    return terms;
  }
};

// By groups 1 and 2; `group`: 0 or 1.
template <int Size, class P>
__device__ void sum_query_gradients(GroupQueriesTiles<Size>& tiles, const P& p, TensorCoreRowTerms* all_terms,
                                    float* parameter_gradients, int group) {
  constexpr bool softmax = decltype(P::weights)::softmax;
  const int of_warp = warp_of_block() % 4 * 16;
  const bool is_leader = threadIdx.x % group_threads == 0;
  const RareOptions options(p);
  const SharedOperand of_stages = tiles.walked[0][0].operand();
  PipelineStage<GroupQueriesTiles<Size>::stages> stage;
  unsigned parity = 0;
  [[maybe_unused]] OutputsOfWarp<Size, P> outputs;
  const auto load_outputs = [&](int n) {
    if constexpr (softmax)
      if (n < query_tiles_of(p)) {
        const QueryTile q = query_tile(p, static_cast<unsigned>(n), group_block_rows);
        outputs.load(p, q, q.first + group * group_rows + of_warp);
      }
  };
  load_outputs(static_cast<int>(blockIdx.x));
  for (int n = static_cast<int>(blockIdx.x); n < query_tiles_of(p); n += static_cast<int>(gridDim.x), parity ^= 1) {
    const QueryTile q = query_tile(p, static_cast<unsigned>(n), group_block_rows);
    const int own_query = q.first + group * group_rows, end = length_of(p, q.sequence);
    const WarpVisibility<false, group_rows, 1, P, group_rows> visibility(p, own_query, end, of_warp);
    [[maybe_unused]] const auto& f = function_of<float>(p, q);
    float parameter_sums[maximum(1, parameters_of<P>)] = {};
    float sum[1][Size / 8][4] = {};
    int last = -1;  // the stage whose product may be in flight
    const auto finish = [&] {
      group_products_wait<0>();
      fence_sums(sum[0]);
      if (is_leader && last >= 0) tiles.empty[last].arrive();
      last = -1;
    };
    tiles.own_full.wait(parity);
    TermsOfGroupRows terms = {};
    if constexpr (softmax)
      terms = outputs.terms(p, q, own_query + of_warp, tiles.own[1][group], of_warp, all_terms);
    using Own = OwnRows<Size>;
    const Own queries(tiles.own[0][group], of_warp), gradients(tiles.own[1][group], of_warp);
    const auto release_own = [&] {
      if (lane_of_warp() == 0) tiles.own_empty.arrive();
    };
    if constexpr (Own::in_registers) release_own();
    for (;; stage.advance()) {
      tiles.full[stage.index].wait(stage.parity);
      const KeyTile keys = {false, tiles.place[stage.index].first, end};
      if (keys.first < 0) break;
      TileMasks<1> masks;
      masks.find(visibility, p, options, q, keys);
      if (masks.coverage == Coverage::none) {
        finish();
        if (is_leader) tiles.empty[stage.index].arrive();
        continue;
      }
      const auto& walked = tiles.walked[stage.index];
      const int of_stage = stage.index * static_cast<int>(sizeof walked);
      float s[1][8][4], g[1][8][4];
      group_products_begin();
      queries.start_product(of_stages.farther(of_stage), s);
      gradients.start_product(of_stages.farther(of_stage + GroupTile<Size>::bytes), g);
      group_products_commit();
      group_products_wait<0>();  // also for the product of the stage before
      fence_sums(s[0]), fence_sums(g[0]);
      if (is_leader && last >= 0) tiles.empty[last].arrive();
      last = stage.index;
      const uint64_t bad = masks.coverage == Coverage::some ? find_bad_rows(s, walked[0]) : 0;
      const float factor = score_rows(p, options, s);
      centre_gradients(p, options, masks.kept, terms, g);
      if constexpr (parameters_of<P> > 0) add_parameter_gradients(f, factor, masks, s, g, 0, parameter_sums);
      uint32_t w[1][4][4], dt[1][4][4];
      differentiate_tile(p, f, options, factor, masks, terms, s, g, 0, w, dt);
      int from = of_stage;
      if (bad) {
        separate_bad_rows(walked[0], bad, group, tiles.finite[0][group], dt);
        from = tiles.finite_from_stages(0, group);
      }
      fence_sums(sum[0]);
      group_products_begin();
      start_weights_product<Size>(dt, of_stages.farther(from), sum);
      group_products_commit();
    }
    finish();
    if constexpr (!Own::in_registers) release_own();
    if (is_leader) tiles.empty[stage.index].arrive();
    stage.advance();
    load_outputs(n + static_cast<int>(gridDim.x));
    if constexpr (parameters_of<P> > 0)
      if (parameter_gradients) {
        const int warps = query_tiles_of(p) * group_block_rows / 16;
        const int of_head = warps / (p.batch * p.query_heads);
        const int own_sum = (q.sequence * p.query_heads + q.head) * of_head + (own_query + of_warp) / 16;
        for (int k = 0; k < parameters_of<P>; ++k) {
          const float total = across_lanes(parameter_sums[k], Plus{}, 32);
          if (lane_of_warp() == 0) parameter_gradients[k * int64_t{warps} + own_sum] = total;
        }
      }
    store_rows(rows_of_queries(p, p.gradients.query, q, p.head_size), own_query + of_warp, p.queries, p.head_size, sum,
               [&](int, int) { return p.scale; });
  }
}

template <class P, int Size>
__global__ void __launch_bounds__(group_attention_threads, 1)
    warp_group_attention_backward_queries_kernel(const __grid_constant__ P p,
                                                 const __grid_constant__ AttentionMaps maps,
                                                 TensorCoreRowTerms* terms, float* parameter_gradients) {
  run_groups<GroupQueriesTiles<Size>, 56, 224>(
      [&](auto& tiles) { copy_keys(tiles, p, maps, maps.output_gradient); },
      [&](auto& tiles, int group) { sum_query_gradients(tiles, p, terms, parameter_gradients, group); });
}

}  // namespace orrery::cuda
