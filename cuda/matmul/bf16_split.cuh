// C = A B for f32 on bf16 tensor cores: each element is split into 1 to 3 bf16 terms,
//   x = x_1 + x_2 + x_3 + rest,   x_1 = x rounded,   x_2 = (x - x_1) rounded,   x_3 = (x - x_1 - x_2) rounded,
// and products of terms are summed in f32. Rounding to 8 bits has a relative error of at most 2^-9,
// so x_i is about 2^(-9 (i - 1)) x or less. The relative error of each product a b is at most
//   3 terms:  a_1 b_1 + (a_1 b_2 + a_2 b_1) + (a_1 b_3 + a_2 b_2 + a_3 b_1)   2^-25
//   2 terms:  a_1 b_1 + (a_1 b_2 + a_2 b_1)                                   3 2^-18
//   1 term:   a_1 b_1                                                         2^-8
// Henry, Tang and Heinecke 2019, arXiv:1904.06376. For infinity, NaN and numbers that bf16 rounds
// to infinity, the terms after the first are NaN, and so are sums with them.
//
// A block of eight warps computes a tile of 128 x 128 elements of C, each warp 64 x 32, in steps of
// 16 of k. Each block splits an element once, on its way from registers, which hold the next step,
// to shared memory, which holds all terms of two steps. One barrier per step suffices: after it all
// threads have stored this step, and no thread reads the buffer that is filled next.
#pragma once

#include "cuda/matmul/matmul.cuh"
#include "cuda/matmul/store.cuh"
#include "cuda/matmul/tensor_core.cuh"

namespace orrery::cuda {

// One bf16 term of a step of an operand, [mn][k] or [k][mn] as it is stored; mn: row of A,
// column of B. The pitch puts the eight rows that ldmatrix reads at once in different banks.
struct alignas(16) SplitStep {
  static constexpr int side = 128, depth = 16, chunk = 8;  // a chunk is 16 bytes
  template <bool AlongK>
  static constexpr int pitch = (AlongK ? depth : side) + chunk;
  static_assert(side * pitch<true> >= depth * pitch<false>);
  bf16 element[side * pitch<true>];
};

template <int Terms>
struct SplitTile {
  using Step = SplitStep;
  static constexpr int depth = Step::depth, chunk = 4, chunks = Step::side * depth / chunk / matmul_threads;
  struct Stage {
    Step a[Terms], b[Terms];
  };
  Stage stage[2];
};

// A thread's elements of a step of one operand.
struct RegisterStep {
  static constexpr int chunks = SplitTile<1>::chunks, chunk = SplitTile<1>::chunk;
  float element[chunks][chunk];

  template <bool AlongK>
  static __device__ int row(int i) {
    constexpr int across = (AlongK ? SplitTile<1>::depth : SplitTile<1>::Step::side) / chunk;
    return (static_cast<int>(threadIdx.x) + i * matmul_threads) / across;
  }
  template <bool AlongK>
  static __device__ int column(int i) {
    constexpr int across = (AlongK ? SplitTile<1>::depth : SplitTile<1>::Step::side) / chunk;
    return (static_cast<int>(threadIdx.x) + i * matmul_threads) % across * chunk;
  }

  // `mn_count` and `depth`: counts of mn and k before the edge; elements beyond it are zero.
  template <bool AlongK>
  __device__ void fetch(const float* data, int64_t stride, bool vectors, int mn_count, int depth) {
    const int rows_left = AlongK ? mn_count : depth, columns_left = AlongK ? depth : mn_count;
#pragma unroll
    for (int i = 0; i < chunks; ++i) {
      const int r = row<AlongK>(i), c = column<AlongK>(i);
      const int valid = r < rows_left ? columns_left - c : 0;
      const float* const from = data + r * stride + c;
      if (vectors && valid >= chunk) {
        const Vector<float, chunk> all = *reinterpret_cast<const Vector<float, chunk>*>(from);
#pragma unroll
        for (int e = 0; e < chunk; ++e) element[i][e] = all.value[e];
      } else {
#pragma unroll
        for (int e = 0; e < chunk; ++e) element[i][e] = e < valid ? from[e] : 0.f;
      }
    }
  }
  template <bool AlongK, int Terms>
  __device__ void store(typename SplitTile<Terms>::Step (&term)[Terms]) {
    constexpr int pitch = SplitTile<Terms>::Step::template pitch<AlongK>;
#pragma unroll
    for (int i = 0; i < chunks; ++i)
#pragma unroll
      for (int p = 0; p < Terms; ++p) {
        Vector<uint32_t, 2> pairs;
#pragma unroll
        for (int e = 0; e < chunk; e += 2) {
          const uint32_t pair = pairs.value[e / 2] = round_pair(element[i][e], element[i][e + 1]);
          element[i][e] -= lower_of_pair(pair), element[i][e + 1] -= upper_of_pair(pair);
        }
        bf16* const to = term[p].element + row<AlongK>(i) * pitch + column<AlongK>(i);
        *reinterpret_cast<Vector<uint32_t, 2>*>(to) = pairs;
      }
  }
};

// Loads A (16 rows from `mn`, 16 of k) or B (16 columns, for two products, 16 of k).
template <bool AlongK>
__device__ void load_a(uint32_t (&a)[4], const SplitStep& step, int mn, int k, int lane) {
  constexpr int pitch = SplitStep::pitch<AlongK>;
  if constexpr (AlongK)
    load_matrices<false>(a, step.element + (mn + lane % 16) * pitch + k + lane / 16 * 8);
  else
    load_matrices<true>(a, step.element + (k + lane / 16 * 8 + lane % 8) * pitch + mn + lane / 8 % 2 * 8);
}
template <bool AlongK>
__device__ void load_b(uint32_t (&b)[4], const SplitStep& step, int mn, int k, int lane) {
  constexpr int pitch = SplitStep::pitch<AlongK>;
  if constexpr (AlongK)
    load_matrices<false>(b, step.element + (mn + lane / 16 * 8 + lane % 8) * pitch + k + lane / 8 % 2 * 8);
  else
    load_matrices<true>(b, step.element + (k + lane % 16) * pitch + mn + lane / 16 * 8);
}

// sum += the products of one step, for the warp's rows and columns. The step is summed separately,
// the smallest products first, and then added: tensor cores truncate sums, and the error would be
// visible if they added six products per step. Ootomo and Yokota 2022, arXiv:2203.03341.
template <bool AAlongK, bool BAlongK, int Terms>
__device__ void multiply_split(const typename SplitTile<Terms>::Stage& stage, int row, int column, int lane,
                               float (&sum)[4][4][4]) {
  uint32_t of_b[Terms][2][4];
#pragma unroll
  for (int p = 0; p < Terms; ++p)
#pragma unroll
    for (int j = 0; j < 2; ++j) load_b<BAlongK>(of_b[p][j], stage.b[p], column + j * 16, 0, lane);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint32_t of_a[Terms][4];
    float step[4][4] = {};
#pragma unroll
    for (int p = 0; p < Terms; ++p) load_a<AAlongK>(of_a[p], stage.a[p], row + i * 16, 0, lane);
#pragma unroll
    for (int both = Terms - 1; both >= 0; --both)
#pragma unroll
      for (int p = 0; p <= both; ++p)
#pragma unroll
        for (int j = 0; j < 4; ++j) mma_m16n8k16(step[j], of_a[p], &of_b[both - p][j / 2][j % 2 * 2]);
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[i][j][e] += step[j][e];
  }
}

template <int Terms, bool AAlongK, bool BAlongK, class Epilogue>
__global__ void __launch_bounds__(matmul_threads, 1)
    split_kernel(const __grid_constant__ MatmulPlan<float, float> plan, const __grid_constant__ Epilogue epilogue) {
  using Tile = SplitTile<Terms>;
  Tile& shared = shared_memory<Tile>();
  const Matmul<float>& p = plan.product;
  BlockTile<float> tile = BlockTile<float>::template of<Tile::Step::side, Tile::Step::side>(plan, blockIdx.x);
  RegisterStep a, b;
  const auto fetch = [&](int64_t k) {
    const int depth = static_cast<int>(tile.k1 - k < Tile::depth ? tile.k1 - k : Tile::depth);
    a.template fetch<AAlongK>(tile.a, p.a.row_stride, plan.vectors_a, tile.rows_left, depth);
    b.template fetch<BAlongK>(tile.b, p.b.row_stride, plan.vectors_b, tile.columns_left, depth);
    tile.a += AAlongK ? Tile::depth : Tile::depth * p.a.row_stride;
    tile.b += BAlongK ? Tile::depth : Tile::depth * p.b.row_stride;
  };

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row = warp / 4 * 64, column = warp % 4 * 32;
  float sum[4][4][4] = {};
  int stage = 0;
  wait_for_earlier();
  if (tile.k0 < tile.k1) fetch(tile.k0);
  for (int64_t k = tile.k0; k < tile.k1; k += Tile::depth, stage ^= 1) {
    a.template store<AAlongK, Terms>(shared.stage[stage].a);
    b.template store<BAlongK, Terms>(shared.stage[stage].b);
    __syncthreads();  // this step has been stored by all threads, and none reads the buffer that is filled next
    if (k + Tile::depth < tile.k1) fetch(k + Tile::depth);
    multiply_split<AAlongK, BAlongK, Terms>(shared.stage[stage], row, column, lane, sum);
  }
  allow_next();
  store_sums<16, 16, 0, 4>(plan, tile, sum, row, column, lane, epilogue);
}

template <int Terms>
struct SplitKernels {
  static constexpr int rows = SplitStep::side, columns = rows, depth = SplitStep::depth;
  static int64_t splits(int64_t tiles, int64_t k) { return splits_that_fill(tiles, k); }
  template <class Epilogue>
  static void launch(const MatmulPlan<float, float>& plan, const Epilogue& epilogue) {
    const auto run = [&](auto kernel) {
      cuda::launch({"matmul", blocks_of(plan), matmul_threads, sizeof(SplitTile<Terms>)}, kernel, plan, epilogue);
    };
    const bool a = !plan.product.a.transposed, b = plan.product.b.transposed;  // along k
    if (a && b) return run(split_kernel<Terms, true, true, Epilogue>);
    if (a) return run(split_kernel<Terms, true, false, Epilogue>);
    if (b) return run(split_kernel<Terms, false, true, Epilogue>);
    run(split_kernel<Terms, false, false, Epilogue>);
  }
};

}  // namespace orrery::cuda
