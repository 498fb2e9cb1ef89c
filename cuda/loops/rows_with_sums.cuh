// Rows whose body also adds to sums of the columns (add_to_columns), on a GPU. A thread keeps the sums
// of its packs in registers over all its rows. The warps of a block add theirs in order, and a second
// kernel adds those of the blocks (block_sums.h).
#pragma once

#include <array>
#include <memory>

#include "cuda/loops/block_sums.h"
#include "cuda/loops/rows.cuh"

namespace orrery::cuda {

inline constexpr int64_t max_blocks_with_sums = 264;  // a fixed number, because the order of sums depends on it

template <class A>
struct SumsPerWarp {
  A value[loop_warps][max_warp_row];
};

// Each block writes its K sums of column i to partial[(k * blocks + block) * n + i].
template <class Threads, class A, int K, class Body>
__global__ void __launch_bounds__(loop_threads)
    rows_with_sums_kernel(int64_t count, int n, const Body body, A* partial) {
  using Sums = ColumnSums<A, K, Threads>;
  constexpr bool by_warps = Threads::count() == 32;
  constexpr int rows = by_warps ? loop_warps : 1, W = Threads::pack;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t step = int64_t{gridDim.x} * rows;
  Sums sums;
  wait_for_earlier();
  allow_next();
  for (int64_t r = int64_t{blockIdx.x} * rows + (by_warps ? warp : 0); r < count; r += step)
    body(RowOf<Threads, Sums>{n, {}, &sums}, r);
#pragma unroll  // registers have no index
  for (int k = 0; k < K; ++k) {
    A* const to = partial + (int64_t{k} * gridDim.x + blockIdx.x) * n;
    const auto each = [&](A* out) {
#pragma unroll
      for (int slot = 0; slot < Threads::packs; ++slot)
#pragma unroll
        for (int j = 0; j < W; ++j)
          if (const int i = static_cast<int>(Threads::index() + slot * Threads::count()) * W + j; i < n)
            out[i] = sums.value[slot][j][k];
    };
    if constexpr (by_warps) {
      auto& shared = shared_memory<SumsPerWarp<A>>().value;
      each(shared[warp]);
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < n; i += loop_threads) {
        A sum = shared[0][i];
        for (int w = 1; w < loop_warps; ++w) sum += shared[w][i];
        to[i] = sum;
      }
      __syncthreads();  // the next sums are written
    } else {
      each(to);
    }
  }
}

// Like rows, but the body also adds to the sums of columns (add_to_columns), which go to out[k], or
// nowhere if it is null. Returns false, and does nothing, if the rows are too long or not in packs.
// The order of a sum depends on the sizes alone.
template <int K, class A, class Body>
bool rows_with_sums(int64_t count, int n, const Body& body, const std::array<SumOfRows<A>, K>& out) {
  const bool in_packs = n % pack_of_row == 0 && n >= min_packed_row;
  using OfBlock = Block<pack_of_row>;
  if (count == 0 || !in_packs || n > OfBlock::packs * pack_of_row * loop_threads) return false;
  const bool by_warps = n <= max_warp_row;
  const auto blocks = std::min(by_warps ? ceil_div(count, loop_warps) : count, max_blocks_with_sums);
  const auto workspace = std::make_shared<Workspace>(K * blocks * n * static_cast<int64_t>(sizeof(A)));
  A* const partial = static_cast<A*>(workspace->data());
  launch({"rows", static_cast<unsigned>(blocks), loop_threads,
          by_warps ? sizeof(SumsPerWarp<A>) : sizeof(PerWarp<double>)},
         by_warps ? rows_with_sums_kernel<Warp<pack_of_row>, A, K, Body> : rows_with_sums_kernel<OfBlock, A, K, Body>,
         count, n, body, partial);
  for (int k = 0; k < K; ++k)
    if (const auto& to = out[static_cast<size_t>(k)]; to.out)
      add_blocks<A>({partial + k * blocks * n, to.out, n, blocks, to.accumulate}, workspace, to.may_wait);
  return true;
}

}  // namespace orrery::cuda
