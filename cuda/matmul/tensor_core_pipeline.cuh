// C = A B for bf16 by warp groups with different tasks, of compute capability 9.0 (warp_group.cuh,
// tile_copies.cuh): epilogues run while the next tile is multiplied. A block computes tiles of
// 128 x 256 until none are left, and the order of sums over k is that of warp_group_tiles.cuh, so
// bits are equal.
//
//   group 0      one lane copies steps of A and B, 64 of k each, to a ring of three stages. A lane of another warp
//                copies what belongs to C: bias, residual, `per_element`, and the results back to memory
//   groups 1, 2  multiply 64 rows each, add bias and residual, and leave the rounded result in `c`
//   group 3      if the epilogue fills a second matrix: processes c in parts of 64 x 64, reads `per_element` from a
//                ring of two such parts and leaves the second values there
//
// Between two tiles the tensor cores wait only until c is written: the steps of the next tile are
// there. c is free for the next tile when it has been stored. Groups 1 to 3 know no coordinates, so they
// execute few instructions: all data arrives with a barrier, and leaves after another one.
//
// A is stored along k, C is bf16, is not accumulated, and its rows are aligned. Other products, and
// those with few tiles, use warp_group_tiles.cuh.
#pragma once

#include <optional>

#include "cuda/matmul/tile_copies.cuh"
#include "cuda/matmul/warp_group_tiles.cuh"

namespace orrery::cuda {

struct PipelineTile {
  static constexpr int rows = 128, columns = 256, depth = 64, stages = 3, threads = 4 * group_threads;
  // Parts of c: down the first 64 columns, then down the next.
  static constexpr int part_rows = 64, part_columns = 64, part_bytes = part_rows * group_line;
  static constexpr int parts_down = rows / part_rows, parts = parts_down * columns / part_columns, parts_ahead = 2;
  alignas(1024) unsigned char a[stages][rows * group_line];
  alignas(1024) unsigned char b[stages][columns * group_line];
  alignas(1024) unsigned char c[parts][part_bytes];
  alignas(1024) unsigned char second[parts_ahead][part_bytes];
  alignas(16) bf16 bias[columns];
  TransactionBarrier full[stages], empty[stages];  // the stages
  TransactionBarrier ready, staged;                // c is free, bias and residual have arrived; c is written
  TransactionBarrier arrived[parts_ahead];         // a part of `second` is free, and `per_element` is there
  TransactionBarrier finished[parts_ahead];        // it has the second values, and c's part its results
};
struct PipelineMaps {
  TensorMap a[4], b, c[4], second, per_element;  // of the parts of A and of the outputs
};

template <class Epilogue>
concept ReadsStaged = ReadsElements<Epilogue> && !AddsElement<Epilogue>;  // its elements are for the second matrix

inline __device__ uint32_t tiles_of(const MatmulPlan<bf16, bf16>& plan) {
  return static_cast<uint32_t>(plan.tiles_down * plan.tiles_across * plan.product.batch);
}
inline __device__ BlockTile<bf16> pipeline_tile(const MatmulPlan<bf16, bf16>& plan, uint32_t tile) {
  return BlockTile<bf16>::of<PipelineTile::rows, PipelineTile::columns, uint32_t>(plan, tile);
}

// By one lane of group 0.
template <bool BAlongK>
__device__ void copy_steps(PipelineTile& shared, const MatmulPlan<bf16, bf16>& plan, const PipelineMaps& maps) {
  using Tile = PipelineTile;
  const Matmul<bf16>& p = plan.product;
  PipelineStage<Tile::stages> stage;
  for (uint32_t n = blockIdx.x, tiles = tiles_of(plan); n < tiles; n += gridDim.x) {
    const BlockTile<bf16> tile = pipeline_tile(plan, n);
    const int row = static_cast<int>(tile.row), column = static_cast<int>(plan.begins[tile.output] + tile.column);
    const int matrix_a = p.a.batch_stride ? tile.batch : 0, matrix_b = p.b.batch_stride ? tile.batch : 0;
    int part = 0, begin = 0;  // of A, and its first k
    for (int k = 0; k < static_cast<int>(p.k); k += Tile::depth, stage.advance()) {
      if (p.a_parts[0].columns && k == begin + static_cast<int>(p.a_parts[part].columns))
        begin = k, ++part;
      TransactionBarrier& full = shared.full[stage.index];
      shared.empty[stage.index].wait(stage.parity ^ 1);
      full.expect(sizeof shared.a[0] + sizeof shared.b[0]);
      tile_load(shared.a[stage.index], maps.a[part], full, {k - begin, row, matrix_a, 0});
      unsigned char* const b = shared.b[stage.index];
      if constexpr (BAlongK)
        tile_load(b, maps.b, full, {k, column, matrix_b, 0});
      else
        for (int i = 0; i < Tile::columns / 64; ++i)
          tile_load(b + i * 64 * group_line, maps.b, full, {column + i * 64, k, matrix_b, 0});
    }
  }
  allow_next();
}

// By groups 1 and 2; `group`: 0 or 1.
template <bool BAlongK, class Epilogue>
__device__ void multiply_steps(PipelineTile& shared, const MatmulPlan<bf16, bf16>& plan, int group,
                               const Epilogue& epilogue) {
  using Tile = PipelineTile;
  using A = WarpGroupStep<Tile::rows, true>;
  using B = WarpGroupStep<Tile::columns, BAlongK>;
  const int thread = static_cast<int>(threadIdx.x) % group_threads, lane = thread % 32;
  const int row = group * group_rows + thread / 32 * 16 + lane % 16;
  const bool is_leader = thread == 0;
  const SharedOperand of_a = A::operand(shared_address(shared.a), group, 0);
  const SharedOperand of_b = B::operand(shared_address(shared.b), 0, 0);
  const int depth = static_cast<int>(plan.product.k);
  PipelineStage<Tile::stages> stage;
  unsigned parity = 0;
  for (uint32_t n = blockIdx.x, tiles = tiles_of(plan); n < tiles; n += gridDim.x, parity ^= 1) {
    // 128 columns each: products of 256 need more registers than 512 threads begin with. Zeros are added to, as in the
    // other kernel: a sum of no numbers but -0 is 0.
    float sum[2][16][4] = {};
    int last = 0;
    for (int k = 0; k < depth; k += Tile::depth, stage.advance()) {
      shared.full[stage.index].wait(stage.parity);
      group_products_begin();
#pragma unroll
      for (int sixteen = 0; sixteen < Tile::depth / 16; ++sixteen)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          group_product<false, !BAlongK>(
              sum[half], of_a.farther(stage.index * A::bytes + A::offset_of_k(sixteen)),
              of_b.farther(stage.index * B::bytes + 2 * half * B::mn_bytes + B::offset_of_k(sixteen)));
      group_products_commit();
      group_products_wait<1>();  // the step before
      if (is_leader && k > 0) shared.empty[last].arrive();
      last = stage.index;
    }
    group_products_wait<0>();
    fence_sums(sum[0]), fence_sums(sum[1]);
    if (is_leader) shared.empty[last].arrive();
    shared.ready.wait(parity);
    const auto stage_sums = [&](auto has_bias, auto has_residual) {
#pragma unroll
      for (int sixteen = 0; sixteen < Tile::columns / 16; ++sixteen) {
        unsigned char* const to = &shared.c[0][0] + sixteen / 4 * Tile::rows * group_line + row * group_line +
                                  ((sixteen % 4 * 2 + lane / 16) ^ row % 8) * 16;
        uint32_t residual[4] = {}, rounded[4];
        if (has_residual) load_matrices<false>(residual, to);
#pragma unroll
        for (int eight = 0; eight < 2; ++eight) {
          const auto* const bias = reinterpret_cast<const uint32_t*>(shared.bias + sixteen * 16 + eight * 8);
          const uint32_t add = has_bias ? bias[lane % 4] : 0;
#pragma unroll
          for (int m = 2 * eight; m < 2 * eight + 2; ++m) {
            const float* const x = &sum[sixteen / 8][sixteen % 8 * 2 + eight][m % 2 * 2];
            float lower = x[0], upper = x[1];
            if (has_bias) lower += lower_of_pair(add), upper += upper_of_pair(add);
            if (has_residual) lower += lower_of_pair(residual[m]), upper += upper_of_pair(residual[m]);
            rounded[m] = round_pair(lower, upper);
          }
        }
        store_matrices(to, rounded);
      }
    };
    const auto stage_with = [&](auto has_bias) {
      if (AddsElement<Epilogue> && epilogue.per_element)
        stage_sums(has_bias, std::bool_constant<AddsElement<Epilogue>>());
      else
        stage_sums(has_bias, std::false_type());
    };
    if (epilogue.per_column)
      stage_with(std::true_type());
    else
      stage_with(std::false_type());
    shared_written();
    shared.staged.arrive();
  }
}

// By one lane of group 0.
template <class Epilogue>
__device__ void copy_outputs(PipelineTile& shared, const MatmulPlan<bf16, bf16>& plan, const PipelineMaps& maps,
                             const Epilogue& epilogue) {
  using Tile = PipelineTile;
  unsigned parity = 0;
  for (uint32_t n = blockIdx.x, tiles = tiles_of(plan); n < tiles; n += gridDim.x, parity ^= 1) {
    const BlockTile<bf16> tile = pipeline_tile(plan, n);
    const int row = static_cast<int>(tile.row), column = static_cast<int>(tile.column);
    const auto load = [&](void* to, int part, TransactionBarrier& barrier) {
      tile_load(to, maps.per_element, barrier,
                {column + part / Tile::parts_down * Tile::part_columns, row + part % Tile::parts_down * Tile::part_rows,
                 tile.batch, 0});
    };
    const auto store = [&](const TensorMap& map, const void* from, int part) {
      tile_store(map, from,
                 {column + part / Tile::parts_down * Tile::part_columns,
                  row + part % Tile::parts_down * Tile::part_rows, tile.batch, 0});
    };
    const auto give = [&](int part) {
      TransactionBarrier& arrived = shared.arrived[part % Tile::parts_ahead];
      if constexpr (ReadsStaged<Epilogue>) {
        arrived.expect(Tile::part_bytes);
        load(shared.second[part % Tile::parts_ahead], part, arrived);
      } else {
        arrived.arrive();
      }
    };
    const int bias_bytes = epilogue.per_column ? tile.columns_left * static_cast<int>(sizeof(bf16)) : 0;
    const bool adds = AddsElement<Epilogue> && epilogue.per_element;
    shared.ready.expect(bias_bytes + (adds ? static_cast<int>(sizeof shared.c) : 0));
    if (epilogue.per_column)
      bulk_load(shared.bias, epilogue.per_column + tile.first_column + tile.column, bias_bytes, shared.ready);
    if (adds)
      for (int part = 0; part < Tile::parts; ++part) load(shared.c[part], part, shared.ready);
    if constexpr (FillsSecond<Epilogue>)
      for (int part = 0; part < Tile::parts_ahead; ++part) give(part);
    shared.staged.wait(parity);
    if constexpr (!ReadsStaged<Epilogue>) {
      for (int part = 0; part < Tile::parts; ++part) store(maps.c[tile.output], shared.c[part], part);
      tile_stores_commit();
    }
    if constexpr (FillsSecond<Epilogue>)
#pragma unroll 1
      for (int part = 0; part < Tile::parts; ++part) {
        shared.finished[part % Tile::parts_ahead].wait(part / Tile::parts_ahead % 2);
        if constexpr (ReadsStaged<Epilogue>) store(maps.c[0], shared.c[part], part);
        store(maps.second, shared.second[part % Tile::parts_ahead], part);
        tile_stores_commit();
        tile_stores_wait<0>();
        if (part + Tile::parts_ahead < Tile::parts) give(part + Tile::parts_ahead);
      }
    else
      tile_stores_wait<0>();
  }
}

// By group 3.
template <class Epilogue>
__device__ void finish_parts(PipelineTile& shared, const MatmulPlan<bf16, bf16>& plan, const Epilogue& epilogue) {
  using Tile = PipelineTile;
  const int thread = static_cast<int>(threadIdx.x) % group_threads;
  unsigned parity = 0;
  for (uint32_t n = blockIdx.x, tiles = tiles_of(plan); n < tiles; n += gridDim.x, parity ^= 1) {
    shared.staged.wait(parity);
#pragma unroll Tile::parts_ahead
    for (int part = 0; part < Tile::parts; ++part) {
      const int slot = part % Tile::parts_ahead;
      shared.arrived[slot].wait(part / Tile::parts_ahead % 2);
#pragma unroll
      for (int at = 0; at < Tile::part_bytes; at += 16 * group_threads) {  // elements stay in their places
        using Words = Vector<uint32_t, 4>;
        const int chunk = at + thread * 16;
        unsigned char *const c = shared.c[part] + chunk, *const second = shared.second[slot] + chunk;
        Words x = *reinterpret_cast<const Words*>(c), y = {};
        if constexpr (ReadsStaged<Epilogue>) y = *reinterpret_cast<const Words*>(second);
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          const auto lower = epilogue.of_rounded(lower_of_pair(x.value[w]), lower_of_pair(y.value[w]));
          const auto upper = epilogue.of_rounded(upper_of_pair(x.value[w]), upper_of_pair(y.value[w]));
          x.value[w] = round_pair(lower[0], upper[0]), y.value[w] = round_pair(lower[1], upper[1]);
        }
        store_chunk(second, y.value);
        if constexpr (ReadsStaged<Epilogue>) store_chunk(c, x.value);
      }
      shared_written();
      shared.finished[slot].arrive();
    }
  }
}

template <bool BAlongK, class Epilogue>
__global__ void __launch_bounds__(PipelineTile::threads, 1)
    tensor_core_pipeline_kernel(const __grid_constant__ MatmulPlan<bf16, bf16> plan,
                                const __grid_constant__ Epilogue epilogue, const __grid_constant__ PipelineMaps maps) {
  if (!warp_groups()) return;
  PipelineTile& shared = shared_memory<PipelineTile>();
  const int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / group_threads, 0);
  if (threadIdx.x == 0) {
    for (int s = 0; s < PipelineTile::stages; ++s) shared.full[s].init(1), shared.empty[s].init(2);
    shared.ready.init(1), shared.staged.init(2 * group_threads);
    for (int s = 0; s < PipelineTile::parts_ahead; ++s)
      shared.arrived[s].init(1), shared.finished[s].init(group_threads);
    barriers_initialized();
  }
  __syncthreads();
  wait_for_earlier();
  if (group == 0) {
    give_registers<40>();
    if (threadIdx.x < 32 && elected()) copy_steps<BAlongK>(shared, plan, maps);
    if (threadIdx.x / 32 == 1 && elected()) copy_outputs(shared, plan, maps, epilogue);
  } else if (group < 3) {
    take_registers<168>();
    multiply_steps<BAlongK>(shared, plan, group - 1, epilogue);
  } else if constexpr (FillsSecond<Epilogue>) {
    finish_parts(shared, plan, epilogue);
  }
}

// Returns nothing if a map cannot be made.
template <class Epilogue>
std::optional<PipelineMaps> pipeline_maps(const MatmulPlan<bf16, bf16>& plan, const Epilogue& epilogue) {
  using Tile = PipelineTile;
  const Matmul<bf16>& p = plan.product;
  PipelineMaps maps{};
  bool all = true;
  // The matrices (rows, columns) of an array that has `batch_stride`, in tiles of 64 columns.
  const auto make = [&](TensorMap& to, const bf16* data, int64_t columns, int64_t rows, int64_t row_stride,
                        int64_t batch_stride, int tile_rows) {
    const std::optional<TensorMap> map = tensor_map({data,
                                                     {columns, rows, batch_stride ? p.batch : 1, 1},
                                                     {row_stride, batch_stride, 0},
                                                     {group_line / 2, tile_rows, 1, 1}});
    all = all && map;
    if (map) to = *map;
  };
  if (!p.a_parts[0].columns) make(maps.a[0], p.a.data, p.k, p.m, p.a.row_stride, p.a.batch_stride, Tile::rows);
  for (int i = 0; i < 4; ++i)
    if (const auto& part = p.a_parts[i]; part.columns)
      make(maps.a[i], part.data, part.columns, p.m, part.row_stride, 0, Tile::rows);
  int64_t columns = 0;  // of a stored row of B
  for (int i = 0; i < 4; ++i) {
    const auto& c = p.c[i];
    if (c.columns == 0) continue;
    columns = std::max(columns, plan.begins[i] + c.columns);
    make(maps.c[i], c.data, c.columns, p.m, c.columns, p.m * c.columns, Tile::part_rows);
  }
  if (p.b.transposed)
    make(maps.b, p.b.data, p.k, p.n, p.b.row_stride, p.b.batch_stride, Tile::columns);
  else
    make(maps.b, p.b.data, columns, p.k, p.b.row_stride, p.b.batch_stride, Tile::depth);
  if constexpr (FillsSecond<Epilogue>) make(maps.second, epilogue.second, p.n, p.m, p.n, p.m * p.n, Tile::part_rows);
  if (epilogue.per_element) make(maps.per_element, epilogue.per_element, p.n, p.m, p.n, p.m * p.n, Tile::part_rows);
  return all ? std::optional(maps) : std::nullopt;
}

}  // namespace orrery::cuda
