// C = A B for bf16 by warp groups (warp_group.cuh), sums in f32; tiles as in tensor_core_tiles.cuh.
//
// A warp group computes blocks of 64 rows and all columns of a tile. Two groups share 128 x 256,
// one block each, and 256 x 192, two each, alternating; one group computes 128 x 128. It loops over
// k in steps of 64: four products of depth 16, which read both operands where cp.async wrote them.
//
// A step's products start before the wait for the previous step, so tensor cores always have work.
// A buffer is refilled after the next barrier, when all groups have waited for its products. So
// shared memory holds four steps: one that is multiplied, one that may still be, and arriving ones.
// It holds three for 128 x 128, two blocks of which share a multiprocessor.
#pragma once

#include <utility>

#include "cuda/matmul/matmul.cuh"
#include "cuda/matmul/store.cuh"
#include "cuda/matmul/tensor_core_tiles.cuh"
#include "cuda/matmul/warp_group.cuh"

namespace orrery::cuda {

// A step of an operand with `MN` rows of A or columns of B, in lines. Offsets in bytes.
template <int MN, bool AlongK>
struct WarpGroupStep {
  static constexpr int depth = 64, chunk = 8, chunk_bytes = 16, chunks = group_line / chunk_bytes;
  static constexpr int rows = MN, row_bytes = group_line, bytes = rows * row_bytes;
  static __device__ int offset(int line, int column_chunk) {
    return line * row_bytes + (column_chunk ^ line % 8) * chunk_bytes;
  }
  static __host__ __device__ constexpr int mn(int line, int column_chunk) {
    return AlongK ? line : line / depth * group_rows + column_chunk * chunk;
  }
  static __host__ __device__ constexpr int k(int line, int column_chunk) {
    return AlongK ? column_chunk * chunk : line % depth;
  }
  // `operand` returns 16 of k for block `sixty_four_of_mn` of 64 of mn and for those after it.
  static constexpr int mn_bytes = 64 * group_line;
  static __device__ constexpr int offset_of_k(int sixteen) { return sixteen * (AlongK ? 16 * 2 : 16 * group_line); }
  static __device__ SharedOperand operand(unsigned step, int sixty_four_of_mn, int sixteen_of_k) {
    const int offset = sixty_four_of_mn * mn_bytes + offset_of_k(sixteen_of_k);
    return SharedOperand::at(step + static_cast<unsigned>(offset), mn_bytes);
  }
};

template <int Columns>
struct WarpGroupTile {
  static constexpr int rows = tile_rows<Columns>, columns = Columns, stages = Columns == 128 ? 3 : 4;
  static constexpr int threads = TensorCoreTile<Columns, true, true>::threads, groups = threads / group_threads;
  static constexpr int blocks = rows / group_rows / groups;  // blocks of 64 rows per group
  static constexpr int rows_apart = groups * group_rows;     // from one block of a group to the next
  alignas(1024) unsigned char a[stages][rows * group_line];
  alignas(1024) unsigned char b[stages][columns * group_line];
  alignas(1024) uint32_t ones[8 * group_line / 4];  // in bf16, for the sums of A's rows
};

template <class Tile, class Result, int N, class Epilogue>
__device__ void store_by_groups(const MatmulPlan<bf16, Result>& plan, const BlockTile<bf16>& tile,
                                const float (&sum)[Tile::blocks][N][4], const Epilogue& epilogue) {
  // Computed again, so that no register holds it during the loop.
  const int thread = in_register(static_cast<int>(threadIdx.x)), lane = thread % 32;
  const int row = thread / group_threads * group_rows + thread / 32 % 4 * 16;
  // 64 columns at a time: registers would not hold the epilogue's inputs for more.
  const auto store = [&]<int... Part>(std::integer_sequence<int, Part...>) {
    (store_sums<16, Tile::rows_apart, Part * 8, 8>(plan, tile, sum, row, Part * 64, lane, epilogue), ...);
  };
  store(std::make_integer_sequence<int, N / 8>());
}

template <int Columns, bool AAlongK, bool BAlongK, class Result, class Epilogue, class To = NoSlot>
__device__ void multiply_by_groups(const MatmulPlan<bf16, Result>& plan, const BlockTile<bf16>& tile,
                                   const Epilogue& epilogue, const To& to = {}) {
  using Tile = WarpGroupTile<Columns>;
  using A = WarpGroupStep<Tile::rows, AAlongK>;
  using B = WarpGroupStep<Tile::columns, BAlongK>;
  constexpr int depth_of_step = A::depth;
  Tile& shared = shared_memory<Tile>();
  const Matmul<bf16, Result>& p = plan.product;
  OperandCopies<Tile, A, B, AAlongK, BAlongK> copies(p, tile);
  const int depth = static_cast<int>(tile.k1 - tile.k0);

  constexpr bool may_sum_rows = !AAlongK && !BAlongK && std::is_same_v<Result, float>;
  const bool sums_rows = may_sum_rows && sums_rows_of(p, tile);
  if (may_sum_rows && sums_rows)
    for (int i = static_cast<int>(threadIdx.x); i < 8 * group_line / 4; i += Tile::threads)
      shared.ones[i] = 0x3f803f80u;
  wait_for_earlier();
  for (int s = 0; s < Tile::stages - 2; ++s) copies.start(plan, shared, s, depth - s * depth_of_step);

  // Equal in all threads of a warp, which the compiler cannot derive from threadIdx.
  const int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / group_threads, 0);
  const unsigned a = shared_address(shared.a), b = shared_address(shared.b);
  float sum[Tile::blocks][Columns / 8][4] = {}, row_sum[Tile::blocks][1][4] = {};
  int stage = 0, next = Tile::stages - 2;
#pragma unroll 1
  for (int left = depth; left > 0; left -= depth_of_step) {
    cp_async_wait<Tile::stages - 3>();
    shared_written();
    __syncthreads();  // all threads' copies of this step have arrived, and products of the last step but one are done
    group_products_begin();
#pragma unroll
    for (int sixteen = 0; sixteen < depth_of_step / 16; ++sixteen) {
      const SharedOperand of_b = B::operand(b + static_cast<unsigned>(stage * B::bytes), 0, sixteen);
#pragma unroll
      for (int i = 0; i < Tile::blocks; ++i)
        group_product<!AAlongK, !BAlongK>(
            sum[i], A::operand(a + static_cast<unsigned>(stage * A::bytes), i * Tile::groups + group, sixteen), of_b);
    }
    if constexpr (may_sum_rows)
      if (sums_rows) {
        group_products_begin();
#pragma unroll
        for (int sixteen = 0; sixteen < depth_of_step / 16; ++sixteen)
#pragma unroll
          for (int i = 0; i < Tile::blocks; ++i)
            group_product<!AAlongK, false>(
                row_sum[i], A::operand(a + static_cast<unsigned>(stage * A::bytes), i * Tile::groups + group, sixteen),
                SharedOperand::at(shared_address(shared.ones), A::mn_bytes));
      }
    group_products_commit();
    copies.start(plan, shared, next, left - (Tile::stages - 2) * depth_of_step);
    group_products_wait<1>();
    stage = stage == Tile::stages - 1 ? 0 : stage + 1;
    next = next == Tile::stages - 1 ? 0 : next + 1;
  }
  group_products_wait<0>();
  if (to.is_last) allow_next();

  // Computed again, so that no register holds it during the loop.
  const int thread = in_register(static_cast<int>(threadIdx.x)), lane = thread % 32;
  const int row = thread / group_threads * group_rows + thread / 32 % 4 * 16;
  const auto store_row_sums = [&](float* all, int rows_left, bool accumulate) {
    if (lane % 4 == 0)  // all columns of such a product are equal
#pragma unroll
      for (int n = 0; n < 2 * Tile::blocks; ++n) {
        const int r = row + n / 2 * Tile::rows_apart + n % 2 * 8 + lane / 4;
        if (r < rows_left) all[r] = row_sum[n / 2][0][n % 2 * 2] + (accumulate ? all[r] : 0);
      }
  };
  if constexpr (std::is_same_v<To, Slot>)
    if (to.data) {
      each_in_slot(to.data, sum, StoreInSlot{});
      if (sums_rows) store_row_sums(to.data + Slot::sums, Tile::rows, false);
      return;
    }
  if constexpr (may_sum_rows)
    if (sums_rows)
      store_row_sums(p.row_sums + tile.split * p.m + tile.row, tile.rows_left, p.accumulate_row_sums);
  store_by_groups<Tile>(plan, tile, sum, epilogue);
}

}  // namespace orrery::cuda
