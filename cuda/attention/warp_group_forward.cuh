// Attention forward by warp groups: see warp_group_walk.cuh. While the tensor cores add the values of one tile, a group
// computes the weights of the next.
//
// A tile has 128 keys. Masks are those of its halves, with 64 keys each; products and softmax take the tile as a whole.
// The base of a row's powers is the largest score of the first tile that it sees. Later tiles need no maximum, as bf16
// has the exponents of f32. If a sum exceeds 2^64, weights and sums of its row are multiplied by 2^-60. If a power is
// infinite, the warp multiplies its scores again and uses their maximum.
#pragma once

#include "cuda/attention/warp_group_walk.cuh"

namespace orrery::cuda {

template <int Size>
struct GroupForwardTiles : GroupStages<Size == 64 ? 4 : 3> {
  using Walked = GroupTile<Size, group_forward_keys>;
  uint32_t bad_rows[2][group_forward_keys / 32];  // of each group
  GroupTile<Size> own[1][2];                      // queries of each group
  Walked walked[Size == 64 ? 4 : 3][2];           // keys and values
};

using GroupScores = float[2][8][4];  // of a lane: halves of 64 keys
__device__ inline float (&of_tile(GroupScores& s))[1][16][4] { return reinterpret_cast<float (&)[1][16][4]>(s); }

namespace {  // internal, because Coverage and OnlineSoftmax are
// Finds the masks of the halves of a tile. All warps of a group find the same coverage.
template <class Visibility, class P>
__device__ void find_masks(const Visibility& visibility, const P& p, const RareOptions& options, const QueryTile& q,
                           const KeyTile& keys, TileMasks<2>& masks) {
  masks.coverage = Coverage::all;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    TileMasks<1> part;
    part.find(visibility, p, options, q, {false, keys.first + 64 * half, keys.end});
    if (part.coverage != Coverage::all) masks.coverage = Coverage::some;
    masks.visible[half] = part.coverage == Coverage::some ? part.visible[0] : part.coverage == Coverage::all ? ~0u : 0;
    masks.kept[half] = part.kept[0];
  }
}

template <int Size>
struct GroupSoftmax : TensorCoreSoftmax<1, Size> {
  static constexpr float most = 0x1p64f, large = 0x1p60f, fewer_exponents = 60, lowest = OnlineSoftmax<float>::lowest;
  bool has_bases = false;  // of all rows of the warp

  __device__ void weigh_by_maximum(float factor, float (&s)[1][16][4], float (&output)[1][Size / 8][4]) {
    this->weigh(factor, s, output);
    has_bases = !__ballot_sync(~0u, fminf(this->rows[0][0].largest, this->rows[0][1].largest) == lowest);
  }
  __device__ void weigh_from_bases(float factor, float (&s)[1][16][4]) {
    const float to_exponent = factor * log2_of_e;
    each_score(s, [&](int, int bit) {
      float& score = s[0][bit / 4][bit % 4];
      score = this->rows[0][bit / 2 % 2].weigh(1.f, to_exponent * score, PowerOfTwo{});
    });
  }
  // Returns true in all lanes of a warp if a sum is not below `limit`.
  __device__ bool exceeds(float limit) const {
    return __ballot_sync(~0u, !(this->rows[0][0].sum + this->rows[0][1].sum < limit));
  }
  __device__ void shrink(float (&s)[1][16][4], float (&output)[1][Size / 8][4]) {
    float times[2] = {1, 1};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      OnlineSoftmax<float>& row = this->rows[0][h];
      if (across_lanes(row.sum, LargerNumber{}, lanes_of_row) > large)
        times[h] = row.update_max(row.largest + fewer_exponents, PowerOfTwo{});
    }
    each_score(s, [&](int, int bit) { s[0][bit / 4][bit % 4] *= times[bit / 2 % 2]; });
    each_score(output, [&](int, int bit) { output[0][bit / 4][bit % 4] *= times[bit / 2 % 2]; });
  }
};
}  // namespace

// Adds weights times values if some values are not finite, and returns true then; by a whole group, after a product.
// Each thread checks a row.
template <int Size>
__device__ bool add_bad_values(const GroupTile<Size, group_forward_keys>& values, int group,
                               uint32_t (&bad_rows)[group_forward_keys / 32], const uint32_t (&weights)[2][4][4],
                               float (&output)[1][Size / 8][4]) {
  // In registers, or the compiler would compute all addresses before the loop over tiles.
  const int thread = in_register(static_cast<int>(threadIdx.x) % group_threads), lane = in_register(lane_of_warp());
  uint32_t mine = 0;
#pragma unroll 4
  for (int n = 0; n < Size / 8; ++n)
    for (const uint32_t pair : static_cast<const RowChunk*>(values.chunk(thread, n))->pair) mine |= not_finite(pair);
  if (const uint32_t of_warp = __ballot_sync(~0u, mine != 0); lane == 0) bad_rows[thread / 32] = of_warp;
  meet_group(group);
  if (!(bad_rows[0] | bad_rows[1] | bad_rows[2] | bad_rows[3])) return false;
#pragma unroll 1
  for (int half = 0; half < 2; ++half) {
    uint32_t part[1][4][4];
    for (int n = 0; n < 16; ++n) part[0][n / 4][n % 4] = half ? weights[1][n / 4][n % 4] : weights[0][n / 4][n % 4];
    add_with_bad_rows([&](int k, int c) { return values.chunk(64 * half + 16 * k + lane % 16, 2 * c + lane / 16); },
                      part, bad_rows[2 * half] | uint64_t{bad_rows[2 * half + 1]} << 32, output);
  }
  meet_group(group);  // no warp reads the values then
  return true;
}

// By groups 1 and 2; `group`: 0 or 1.
template <int Size, class P>
__device__ void sum_values(GroupForwardTiles<Size>& tiles, const P& p, int group) {
  using Tiles = GroupForwardTiles<Size>;
  using Own = OwnRows<Size>;
  constexpr bool softmax = decltype(P::weights)::softmax, positive_part = decltype(P::weights)::positive_part;
  constexpr int bytes_of_stage = sizeof tiles.walked[0];
  const int of_warp = warp_of_block() % 4 * 16;
  const bool is_leader = threadIdx.x % group_threads == 0;
  const SharedOperand of_stages = tiles.walked[0][0].operand();
  PipelineStage<Tiles::stages> stage;
  for (unsigned turn = 0;; ++turn) {  // of the block
    const unsigned tile = blockIdx.x + turn * gridDim.x;
    if (tile >= static_cast<unsigned>(query_tiles_of(p))) break;
    const QueryTile q = query_tile(p, tile, group_block_rows);
    const int own_query = q.first + group * group_rows, end = length_of(p, q.sequence);
    const RareOptions options(p);
    WarpVisibility<false, 64, 1, P, group_rows> visibility(p, own_query, end, of_warp);
    visibility.shorten_full(options.scores() || options.dropout() ? MaskView::unbounded : 64);
    [[maybe_unused]] const auto& f = function_of<float>(p, q);
    GroupSoftmax<Size> state;
    float output[1][Size / 8][4] = {};
    uint32_t weights[2][4][4];
    int last = 0;  // the stage of these weights
    const auto start_values = [&] {
      start_weights_product<Size>(weights, of_stages.farther(last * bytes_of_stage + Tiles::Walked::bytes), output);
      group_products_commit();
    };
    const auto finish_values = [&] {
      group_products_wait<0>();
      fence_sums(output[0]);
      if (is_leader) tiles.empty[last].arrive();
    };
    tiles.own_full.wait(turn % 2);
    const Own queries(tiles.own[0][group], of_warp);
    const auto release_own = [&] {
      if (lane_of_warp() == 0) tiles.own_empty.arrive();
    };
    if constexpr (Own::in_registers) release_own();

    // Computes the weights of the next tile while its values, or with `Adds` those of the last tile, are added.
    enum class Step { weighed, added, ended };
    const auto step = [&]<bool Adds>() {
      tiles.full[stage.index].wait(stage.parity);
      const KeyTile keys = {false, tiles.place[stage.index].first, end};
      if (keys.first < 0) return Step::ended;
      const auto& walked = tiles.walked[stage.index];
      const bool plain = visibility.is_full(keys.first);  // all of the tile, and no rare option
      TileMasks<2> masks;
      if (!plain) find_masks(visibility, p, options, q, keys, masks);
      GroupScores s;
      fence_sums(output[0]);
      group_products_begin();
      queries.start_product(of_stages.farther(stage.index * bytes_of_stage), of_tile(s));
      group_products_commit();
      if constexpr (Adds) start_values();
      group_products_wait<Adds>();
      fence_sums(of_tile(s)[0]);
      float factor = decltype(P::weights)::homogeneous ? 1.f : p.scale;
      const auto find_scores = [&] {
        if (plain) return;
        factor = score_rows(p, options, s);
        if (softmax && masks.coverage == Coverage::some) masked_fill(masks.visible, OnlineSoftmax<float>::lowest, s);
      };
      find_scores();
      if constexpr (!softmax) {
        if constexpr (!positive_part)  // else rounding computes it
          each_score(s, [&](int block, int bit) {
            float& score = s[block][bit / 4][bit % 4];
            score = f.value(factor * score);
          });
        if (!plain && masks.coverage == Coverage::some) masked_fill(masks.visible, 0.f, s);
        if constexpr (Adds) finish_values();
      } else {
        const auto weigh_from_bases = [&] {  // returns false if the tile needs its maximum
          const float sums[2] = {state.rows[0][0].sum, state.rows[0][1].sum};
          if (!Adds || !state.has_bases) {
            if constexpr (Adds) finish_values();
            return false;
          }
          state.weigh_from_bases(factor, of_tile(s));
          finish_values();
          if (!state.exceeds(state.most)) return true;
          if (!state.exceeds(std::numeric_limits<float>::infinity())) {
            state.shrink(of_tile(s), output);
            return true;
          }
          state.rows[0][0].sum = sums[0], state.rows[0][1].sum = sums[1];
          queries.multiply_alone(tiles.own[0][group], of_warp, walked[0], of_tile(s));
          find_scores();
          return false;
        };
        if (!weigh_from_bases()) state.weigh_by_maximum(factor, of_tile(s), output);
      }
      round_weights<positive_part>(s, weights);
      last = stage.index;
      stage.advance();
      if (plain) return Step::weighed;
      if (options.dropout()) drop_weights(masks.kept, weights);
      if (masks.coverage != Coverage::some ||
          !add_bad_values(walked[1], group, tiles.bad_rows[group], weights, output))
        return Step::weighed;
      if (is_leader) tiles.empty[last].arrive();
      return Step::added;
    };
    Step done = Step::added;
    while (done == Step::added) {
      done = step.template operator()<false>();
      if (done == Step::ended) break;
      while (done == Step::weighed) done = step.template operator()<true>();
      if (done == Step::added) continue;
      fence_sums(output[0]);
      group_products_begin();
      start_values();
      finish_values();
    }
    if constexpr (!Own::in_registers) release_own();
    if (is_leader) tiles.empty[stage.index].arrive();
    stage.advance();
    store_output(p, options, q, own_query + of_warp, state, output);
  }
}

template <class P, int Size>
__global__ void __launch_bounds__(group_attention_threads, 1)
    warp_group_attention_forward_kernel(const __grid_constant__ P p, const __grid_constant__ AttentionMaps maps) {
  run_groups<GroupForwardTiles<Size>, 48, 232>([&](auto& tiles) { copy_keys(tiles, p, maps); },
                                               [&](auto& tiles, int group) { sum_values(tiles, p, group); });
}

}  // namespace orrery::cuda
