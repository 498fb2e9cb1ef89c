#include "cuda/loops/block_sums.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cuda/loops/blocks.cuh"
#include "cuda/runtime/runtime.h"
#include "cuda/runtime/waiting.h"

namespace orrery::cuda {
namespace {

constexpr int max_waiting = 64, columns_of_block = 32;

template <class A>
struct Batch {
  BlockSum<A> sums[max_waiting];
  int count;
};
__host__ __device__ int64_t tiles_of(int64_t columns) { return (columns + columns_of_block - 1) / columns_of_block; }
template <class A>
struct SumsOfWarps {
  A value[loop_warps][columns_of_block];
};

// A block adds 32 columns of one sum; each of its warps takes every eighth of the blocks' sums.
template <class A>
__global__ void __launch_bounds__(loop_threads) block_sums_kernel(const __grid_constant__ Batch<A> batch) {
  SumsOfWarps<A>& shared = shared_memory<SumsOfWarps<A>>();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  int64_t tile = blockIdx.x;
  int i = 0;
  for (; tile >= tiles_of(batch.sums[i].columns); ++i) tile -= tiles_of(batch.sums[i].columns);
  const BlockSum<A>& sum = batch.sums[i];
  const int64_t column = tile * columns_of_block + lane;
  const bool here = column < sum.columns;
  wait_for_earlier();
  allow_next();
  A total = 0;
  if (here)
#pragma unroll 4
    for (int64_t b = warp; b < sum.blocks; b += loop_warps) total += sum.partial[b * sum.columns + column];
  shared.value[warp][lane] = total;
  __syncthreads();
  if (warp > 0 || !here) return;
  total = sum.accumulate ? sum.out[column] : 0;
  for (int w = 0; w < loop_warps; ++w) total += shared.value[w][lane];
  sum.out[column] = total;
}

// This thread's sums that wait, and their partial sums.
template <class A>
struct Waiting final : WaitingKernels::Kind {
  Batch<A> batch{};
  std::vector<std::shared_ptr<Workspace>> workspaces;

  static Waiting& mine() {
    static thread_local Waiting waiting;
    return waiting;
  }
  void launch() override {
    const Batch<A> all = batch;
    const auto used = std::move(workspaces);
    drop();  // first, because the launch may fail
    int64_t blocks = 0;
    for (int i = 0; i < all.count; ++i) blocks += tiles_of(all.sums[i].columns);
    if (blocks > 0)
      cuda::launch({"block sums", static_cast<unsigned>(blocks), loop_threads, sizeof(SumsOfWarps<A>)},
                   block_sums_kernel<A>, all);
  }
  void drop() override { batch.count = 0, workspaces.clear(); }
  bool writes(const void* out) const override {
    return std::any_of(batch.sums, batch.sums + batch.count, [&](const BlockSum<A>& sum) { return sum.out == out; });
  }
};

}  // namespace

template <class A>
void add_blocks(const BlockSum<A>& sum, const std::shared_ptr<Workspace>& workspace, bool may_wait) {
  Waiting<A>& waiting = Waiting<A>::mine();
  waiting.batch.sums[waiting.batch.count++] = sum;
  waiting.workspaces.push_back(workspace);
  if (!may_wait || !WaitingKernels::allowed() || waiting.batch.count == max_waiting) waiting.launch();
}
template void add_blocks(const BlockSum<float>&, const std::shared_ptr<Workspace>&, bool);
template void add_blocks(const BlockSum<double>&, const std::shared_ptr<Workspace>&, bool);

}  // namespace orrery::cuda
