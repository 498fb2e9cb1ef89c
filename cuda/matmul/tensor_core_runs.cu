#include "cuda/matmul/tensor_core_runs.cuh"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/matmul/tensor_core_kernels.cuh"
#include "cuda/runtime/waiting.h"

namespace orrery::cuda {
namespace {

__global__ void __launch_bounds__(Slot::threads, 1) tensor_core_runs_kernel(const __grid_constant__ Runs runs) {
  const int64_t run = blockIdx.x, end = runs.begin(run + 1), steps = runs.steps_of_tile();
  const Matmul<bf16, float>& p = runs.plan.product;
  const Plain<float> none;
#pragma unroll 1
  for (int64_t at = runs.begin(run); at < end;) {
    const int64_t index = at / steps, next = (index + 1) * steps, stop = next < end ? next : end;
    BlockTile<bf16> tile = runs.tile(index);
    tile.k0 = (at - index * steps) * depth_of_run_step;
    tile.k1 = stop == next ? p.k : (stop - index * steps) * depth_of_run_step;
    tile.a += tile.k0 * tile.stride_a, tile.b += tile.k0 * p.b.row_stride;
    const Slot slot{stop - at < steps ? runs.slot(run, at) : nullptr, stop == end};
    if (warp_groups())
      multiply_by_groups<256, false, false>(runs.plan, tile, none, slot);
    else
      multiply_by_warps<256, false, false>(runs.plan, tile, none, slot);
    at = stop;
    if (at < end) __syncthreads();  // the copies of the next tile overwrite the buffers
  }
}

__global__ void __launch_bounds__(Slot::threads, 1) add_slots_kernel(const __grid_constant__ SlotsOfProducts all) {
  int64_t index = blockIdx.x;
  int product = 0;
  for (; index >= all.products[product].tiles(); ++product) index -= all.products[product].tiles();
  const Runs& runs = all.products[product];
  const Matmul<bf16, float>& p = runs.plan.product;
  const int64_t first = index * runs.steps_of_tile(), last = first + runs.steps_of_tile() - 1;
  const int64_t first_run = runs.run_of(first), last_run = runs.run_of(last);
  wait_for_earlier();
  allow_next();
  if (first_run == last_run) return;  // the tile is whole
  const BlockTile<bf16> tile = runs.tile(index);
  const auto each_slot = [&](const auto& add) {
#pragma unroll 1
    for (int64_t run = first_run; run <= last_run; ++run)
      if (runs.begin(run) < runs.begin(run + 1)) add(runs.slot(run, run == first_run ? first : runs.begin(run)));
  };
  const int row = static_cast<int>(threadIdx.x);
  if (sums_rows_of(p, tile) && row < tile.rows_left) {
    float* const to = p.row_sums + tile.row + row;
    float sum = p.accumulate_row_sums ? *to : 0;
    each_slot([&](const float* slot) { sum += slot[Slot::sums + row]; });
    *to = sum;
  }
  const auto add_to = [&](auto& sum) {
    each_slot([&](float* slot) { each_in_slot(slot, sum, [](float& x, float stored) { x += stored; }); });
  };
  if (warp_groups()) {
    float sum[TileOfRuns::blocks][32][4] = {};
    add_to(sum);
    store_by_groups<TileOfRuns>(runs.plan, tile, sum, Plain<float>());
  } else {
    float sum[4][8][4] = {};
    add_to(sum);
    store_by_warps<TensorCoreTile<256, false, false>>(runs.plan, tile, sum, Plain<float>());
  }
}

struct WaitingSlots final : WaitingKernels::Kind {
  SlotsOfProducts all{};
  std::vector<std::shared_ptr<Workspace>> workspaces;

  static WaitingSlots& mine() {
    static thread_local WaitingSlots waiting;
    return waiting;
  }
  void launch() override {
    const SlotsOfProducts now = all;
    const auto used = std::move(workspaces);
    drop();  // first, because the launch may fail
    int64_t tiles = 0;
    for (int i = 0; i < now.count; ++i) tiles += now.products[i].tiles();
    if (tiles > 0)
      cuda::launch({"matmul: slots", static_cast<unsigned>(tiles), Slot::threads}, add_slots_kernel, now);
  }
  void drop() override { all.count = 0, workspaces.clear(); }
  bool writes(const void* out) const override {
    return std::any_of(all.products, all.products + all.count, [&](const Runs& runs) {
      return runs.plan.product.c[0].data == out || runs.plan.product.row_sums == out;
    });
  }
};

}  // namespace

void multiply_in_runs(const Matmul<bf16, float>& p) {
  MatmulPlan<bf16, float> plan = plan_of<TensorCoreKernels<256>>(p, Plain<float>{});
  plan.splits = 1, plan.length = p.k;
  const AlignedOperands<float> aligned(plan);
  constexpr int64_t floats = runs_of_product * slots_of_run * Slot::floats;
  const auto workspace = std::make_shared<Workspace>(floats * static_cast<int64_t>(sizeof(float)));
  const Runs runs{aligned.plan(), static_cast<float*>(workspace->data())};
  const size_t shared = warp_groups() ? sizeof(TileOfRuns) : sizeof(TensorCoreTile<256, false, false>);
  launch({"matmul", runs_of_product, Slot::threads, shared}, tensor_core_runs_kernel, runs);
  WaitingSlots& waiting = WaitingSlots::mine();
  waiting.all.products[waiting.all.count++] = runs;
  waiting.workspaces.push_back(workspace);
  const bool is_full = waiting.all.count == SlotsOfProducts::max_products;
  if (!p.may_wait || !WaitingKernels::allowed() || is_full) waiting.launch();
}

}  // namespace orrery::cuda
