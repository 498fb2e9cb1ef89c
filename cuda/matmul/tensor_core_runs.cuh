// Gradients of weights in equal runs: C = A^T B for bf16 into f32, where tiles of C do not fill whole
// rounds of multiprocessors. A step is 64 of k of one tile. 132 blocks, on any GPU, have equally many
// steps, one more or less: a run of consecutive ones, tile after tile. A tile that is in one run is
// stored as ever. Of others each run leaves its sums in a slot, and a second kernel adds the slots of
// a tile in the order of k. So the order of sums depends on the sizes alone.
#pragma once

#include <algorithm>

#include "cuda/matmul/tensor_core_tiles.cuh"
#include "cuda/matmul/warp_group_tiles.cuh"

namespace orrery::cuda {

inline constexpr int runs_of_product = 132, depth_of_run_step = 64, slots_of_run = 2;  // its first and last tile
using TileOfRuns = WarpGroupTile<256>;

struct Runs {
  MatmulPlan<bf16, float> plan;
  float* slots;

  __host__ __device__ int64_t tiles() const { return plan.tiles_down * plan.tiles_across; }
  __host__ __device__ int64_t steps_of_tile() const { return matmul_tiles(plan.product.k, depth_of_run_step); }
  __device__ int64_t begin(int64_t run) const { return tiles() * steps_of_tile() * run / runs_of_product; }
  __device__ int64_t run_of(int64_t step) const {
    return ((step + 1) * runs_of_product - 1) / (tiles() * steps_of_tile());
  }
  // The slot for steps of a tile that begins at step `first`.
  __device__ float* slot(int64_t run, int64_t first) const {
    return slots + (run * slots_of_run + (first > begin(run) ? 1 : 0)) * Slot::floats;
  }
  __device__ BlockTile<bf16> tile(int64_t index) const {
    return BlockTile<bf16>::of<TileOfRuns::rows, TileOfRuns::columns>(plan, index);
  }
};

// Products whose slots one launch adds.
struct SlotsOfProducts {
  static constexpr int max_products = 4;
  Runs products[max_products];
  int count;
};

// Returns true if runs compute this product: tiles of 128 x 256 that leave a GPU idle for long if a
// block computes one or a whole K split of it.
inline bool in_runs(const Matmul<bf16, float>& p) {
  constexpr int64_t enough_tiles = 4 * runs_of_product, steps_of_run = 8;
  const int64_t tiles = tiles_down(p, TileOfRuns::rows) * matmul_tiles(p.n, TileOfRuns::columns);
  return p.a.transposed && !p.b.transposed && p.batch == 1 && p.c[0].columns == p.n && p.n > 128 && !p.bias &&
         !p.residual && tiles < enough_tiles && tiles % runs_of_product != 0 &&
         tiles * matmul_tiles(p.k, depth_of_run_step) >= runs_of_product * steps_of_run;
}
void multiply_in_runs(const Matmul<bf16, float>& p);  // queues the product; no epilogue, one output

}  // namespace orrery::cuda
