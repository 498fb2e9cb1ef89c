// Products of bf16 on tensor cores: kernel, choice of tiles, and number of K splits (split_k.cuh).
#pragma once

#include "cuda/matmul/tensor_core_pipeline.cuh"
#include "cuda/matmul/tensor_core_tiles.cuh"
#include "cuda/matmul/warp_group_tiles.cuh"

namespace orrery::cuda {

template <int Columns, bool AAlongK, bool BAlongK, class Result, class Epilogue>
__global__ void __launch_bounds__(TensorCoreTile<Columns, AAlongK, BAlongK>::threads, Columns == 128 ? 2 : 1)
    tensor_core_kernel(const __grid_constant__ MatmulPlan<bf16, Result> plan,
                       const __grid_constant__ Epilogue epilogue) {
  const auto tile = BlockTile<bf16>::template of<tile_rows<Columns>, Columns>(plan, blockIdx.x);
  if (warp_groups())  // the GPU has wgmma (cuda/matmul/warp_group.cuh)
    multiply_by_groups<Columns, AAlongK, BAlongK>(plan, tile, epilogue);
  else
    multiply_by_warps<Columns, AAlongK, BAlongK>(plan, tile, epilogue);
}

// Returns the fastest number of K splits for tiles of 128 x 256. Multiprocessors run tiles in
// rounds; a partial last round takes as long as a full one. Time, in a block's time per index k:
//   rounds (k / splits + 192)    192: a block begins, and the sums of a round go to memory
//   + 3 tiles (splits + 1)       the second kernel reads sums and writes C, and so shares the bandwidth of the GPU
//   + 128                        its launch
// Rounds are counted for 132 multiprocessors on any GPU, because the bits depend on the splits.
inline int64_t fastest_splits(int64_t tiles, int64_t k) {
  constexpr int64_t at_once = 132, max_rounds = 4, beginning = 192, of_sums = 3, of_launch = 128;
  int64_t best = 1, least_time = k + beginning;
  if (tiles >= at_once) return 1;
  for (int64_t splits = 2; splits <= std::min(max_rounds * at_once / tiles, k / min_split_length); ++splits) {
    const int64_t rounds = matmul_tiles(tiles * splits, at_once);
    const int64_t time = rounds * (k / splits + beginning) + of_sums * tiles * (splits + 1) + of_launch;
    if (time < least_time) best = splits, least_time = time;
  }
  return best;
}

// Returns true if the pipeline (tensor_core_pipeline.cuh) computes this product in tiles of 128 x 256,
// unless it needs maps that cannot be made. With less than a round of tiles it would gain nothing.
template <class Result>
bool pipelined(const MatmulPlan<bf16, Result>& plan) {
  constexpr int64_t limit = int64_t{1} << 31;
  const Matmul<bf16, Result>& p = plan.product;
  const int64_t tiles = plan.tiles_down * plan.tiles_across * p.batch;
  return std::is_same_v<Result, bf16> && warp_groups() && has_tensor_maps() && !p.a.transposed && !p.accumulate &&
         plan.vectors_c && plan.splits == 1 && tiles >= device_properties().multiprocessors &&
         std::max({p.m, p.n, p.k, tiles}) < limit / 2;
}

template <int Columns>
struct TensorCoreKernels {
  static constexpr int rows = tile_rows<Columns>, columns = Columns, depth = tensor_core_depth;
  // Tiles of 192 columns depend on the GPU, so they never split k: bits must not depend on it.
  static int64_t splits(int64_t tiles, int64_t k) requires(Columns != 192) {
    return Columns == 256 ? fastest_splits(tiles, k) : splits_that_fill(tiles, k);
  }
  template <class Result, class Epilogue>
  static void launch(const MatmulPlan<bf16, Result>& plan, const Epilogue& epilogue) {
    const AlignedOperands aligned(plan);
    if constexpr (OfOneForm<Epilogue>)  // the epilogue fixes how A and B are stored (epilogue.cuh)
      return launch_form<true, Epilogue::b_transposed>(aligned.plan(), epilogue);
    else
      launch_any(aligned.plan(), epilogue);
  }

 private:
  template <bool AAlongK, bool BAlongK, class Result, class Epilogue>
  static void launch_form(const MatmulPlan<bf16, Result>& plan, const Epilogue& epilogue) {
    if constexpr (Columns == 256 && AAlongK && std::is_same_v<Result, bf16>)
      if (pipelined(plan))
        if (const auto maps = pipeline_maps(plan, epilogue)) {
          const auto blocks = std::min<unsigned>(blocks_of(plan), device_properties().multiprocessors);
          return cuda::launch({"matmul", blocks, PipelineTile::threads, sizeof(PipelineTile)},
                              tensor_core_pipeline_kernel<BAlongK, Epilogue>, plan, epilogue, *maps);
        }
    using Tile = TensorCoreTile<Columns, AAlongK, BAlongK>;
    const size_t shared = warp_groups() ? sizeof(WarpGroupTile<Columns>) : sizeof(Tile);
    cuda::launch({"matmul", blocks_of(plan), Tile::threads, shared},
                 tensor_core_kernel<Columns, AAlongK, BAlongK, Result, Epilogue>, plan, epilogue);
  }
  template <class Result, class Epilogue>
  static void launch_any(const MatmulPlan<bf16, Result>& plan, const Epilogue& epilogue) {
    const bool a = !plan.product.a.transposed, b = plan.product.b.transposed;  // along k
    if (a && b) return launch_form<true, true>(plan, epilogue);
    if (a) return launch_form<true, false>(plan, epilogue);
    if (b) return launch_form<false, true>(plan, epilogue);
    launch_form<false, false>(plan, epilogue);
  }
};

// Returns the columns of the fastest tiles. Wide tiles read A less often from the L2 cache, narrow
// ones occupy more of the GPU. A tile of 256 x 192 takes 3/2 of the time of 128 x 256, but may
// leave fewer multiprocessors idle in the last round. The order of sums and so the bits are equal.
//
// in_pipeline: those of 128 x 256 would be computed by the pipeline. Its time is modelled, in 10 ns:
//   rounds (65 steps of 64 of k + 35) + 160     35: c is written; 160: a block begins and ends
//   rounds (99 steps + 380)                     of tiles of 256 x 192, as measured on an H200
template <class Result>
int columns_of_tiles(const Matmul<bf16, Result>& p, int multiprocessors, bool in_pipeline) {
  constexpr int64_t blocks = 128, length = 512;  // enough to fill a GPU; of k per block
  const int64_t wide = tiles_down(p, 128) * tiles_across(p, 256) * p.batch;
  if (wide * std::max<int64_t>(1, p.k / length) < blocks || p.n <= 128) return 128;
  const int64_t large = tiles_down(p, 256) * tiles_across(p, 192) * p.batch;
  const int64_t rounds = matmul_tiles(wide, multiprocessors), large_rounds = matmul_tiles(large, multiprocessors);
  if (fastest_splits(wide, p.k) > 1) return 256;
  if (!in_pipeline) return 3 * large_rounds < 2 * rounds ? 192 : 256;
  const int64_t steps = matmul_tiles(p.k, PipelineTile::depth);
  return large_rounds * (99 * steps + 380) < rounds * (65 * steps + 35) + 160 ? 192 : 256;
}

}  // namespace orrery::cuda
