// C = A B for f32 on bf16 tensor cores: each element is split into 1 to 3 bf16 terms,
//   x = x_1 + x_2 + x_3 + rest,   x_1 = x rounded,   x_2 = (x - x_1) rounded,   x_3 = (x - x_1 - x_2) rounded,
// and products of terms are summed in f32. Rounding to 8 bits has a relative error of at most 2^-9,
// so x_i is about 2^(-9 (i - 1)) x or less. The relative error of each product a b is at most
//   3 parts:  a_1 b_1 + (a_1 b_2 + a_2 b_1) + (a_1 b_3 + a_2 b_2 + a_3 b_1)   2^-25
//   2 parts:  a_1 b_1 + (a_1 b_2 + a_2 b_1)                                   3 2^-18
//   1 part:   a_1 b_1                                                         2^-8
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

// One bf16 term of a step of an operand, [place][k] or [k][place] as it is stored; place: row of A,
// column of B. The pitch puts the eight rows that ldmatrix reads at once in different banks.
struct alignas(16) PartsStep {
  static constexpr int side = 128, depth = 16, chunk = 8;  // a chunk is 16 bytes
  template <bool AlongK>
  static constexpr int pitch = (AlongK ? depth : side) + chunk;
  static_assert(side * pitch<true> >= depth * pitch<false>);
  bf16 element[side * pitch<true>];
};

template <int Parts>
struct PartsTile {
  using Step = PartsStep;
  static constexpr int depth = Step::depth, chunk = 4, chunks = Step::side * depth / chunk / matmul_threads;
  struct Stage {
    Step a[Parts], b[Parts];
  };
  Stage stage[2];
};

// A thread's elements of a step of one operand.
struct HeldStep {
  static constexpr int chunks = PartsTile<1>::chunks, chunk = PartsTile<1>::chunk;
  float element[chunks][chunk];

  template <bool AlongK>
  static __device__ int row(int i) {
    constexpr int across = (AlongK ? PartsTile<1>::depth : PartsTile<1>::Step::side) / chunk;
    return (static_cast<int>(threadIdx.x) + i * matmul_threads) / across;
  }
  template <bool AlongK>
  static __device__ int column(int i) {
    constexpr int across = (AlongK ? PartsTile<1>::depth : PartsTile<1>::Step::side) / chunk;
    return (static_cast<int>(threadIdx.x) + i * matmul_threads) % across * chunk;
  }

  // `places` and `depth`: their numbers before the edge; elements beyond it are zero.
  template <bool AlongK>
  __device__ void fetch(const float* data, int64_t stride, bool vectors, int places, int depth) {
    const int rows_left = AlongK ? places : depth, columns_left = AlongK ? depth : places;
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
  template <bool AlongK, int Parts>
  __device__ void store(typename PartsTile<Parts>::Step (&part)[Parts]) {
    constexpr int pitch = PartsTile<Parts>::Step::template pitch<AlongK>;
#pragma unroll
    for (int i = 0; i < chunks; ++i)
#pragma unroll
      for (int p = 0; p < Parts; ++p) {
        Vector<uint32_t, 2> pairs;
#pragma unroll
        for (int e = 0; e < chunk; e += 2) {
          const uint32_t pair = pairs.value[e / 2] = round_pair(element[i][e], element[i][e + 1]);
          element[i][e] -= lower_of_pair(pair), element[i][e + 1] -= upper_of_pair(pair);
        }
        bf16* const to = part[p].element + row<AlongK>(i) * pitch + column<AlongK>(i);
        *reinterpret_cast<Vector<uint32_t, 2>*>(to) = pairs;
      }
  }
};

// Loads A (16 rows from `place`, 16 of k) or B (16 columns, for two products, 16 of k).
template <bool AlongK>
__device__ void load_a(uint32_t (&a)[4], const PartsStep& step, int place, int k, int lane) {
  constexpr int pitch = PartsStep::pitch<AlongK>;
  if constexpr (AlongK)
    load_matrices<false>(a, step.element + (place + lane % 16) * pitch + k + lane / 16 * 8);
  else
    load_matrices<true>(a, step.element + (k + lane / 16 * 8 + lane % 8) * pitch + place + lane / 8 % 2 * 8);
}
template <bool AlongK>
__device__ void load_b(uint32_t (&b)[4], const PartsStep& step, int place, int k, int lane) {
  constexpr int pitch = PartsStep::pitch<AlongK>;
  if constexpr (AlongK)
    load_matrices<false>(b, step.element + (place + lane / 16 * 8 + lane % 8) * pitch + k + lane / 8 % 2 * 8);
  else
    load_matrices<true>(b, step.element + (k + lane % 16) * pitch + place + lane / 16 * 8);
}

// sum += the products of one step, for the warp's rows and columns. The step is summed separately,
// the smallest products first, and then added: tensor cores truncate sums, and the error would be
// visible if they added six products per step. Ootomo and Yokota 2022, arXiv:2203.03341.
template <bool AAlongK, bool BAlongK, int Parts>
__device__ void multiply_parts(const typename PartsTile<Parts>::Stage& stage, int row, int column, int lane,
                               float (&sum)[4][4][4]) {
  uint32_t of_b[Parts][2][4];
#pragma unroll
  for (int p = 0; p < Parts; ++p)
#pragma unroll
    for (int j = 0; j < 2; ++j) load_b<BAlongK>(of_b[p][j], stage.b[p], column + j * 16, 0, lane);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint32_t of_a[Parts][4];
    float step[4][4] = {};
#pragma unroll
    for (int p = 0; p < Parts; ++p) load_a<AAlongK>(of_a[p], stage.a[p], row + i * 16, 0, lane);
#pragma unroll
    for (int both = Parts - 1; both >= 0; --both)
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

template <int Parts, bool AAlongK, bool BAlongK, class Epilogue>
__global__ void __launch_bounds__(matmul_threads, 1)
    parts_kernel(const __grid_constant__ MatmulPlan<float, float> plan, const __grid_constant__ Epilogue epilogue) {
  using Tile = PartsTile<Parts>;
  Tile& shared = shared_memory<Tile>();
  const Matmul<float>& p = plan.product;
  BlockTile<float> tile = BlockTile<float>::template of<Tile::Step::side, Tile::Step::side>(plan, blockIdx.x);
  HeldStep a, b;
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
  if (tile.k0 < tile.k1) fetch(tile.k0);
  for (int64_t k = tile.k0; k < tile.k1; k += Tile::depth, stage ^= 1) {
    a.template store<AAlongK, Parts>(shared.stage[stage].a);
    b.template store<BAlongK, Parts>(shared.stage[stage].b);
    __syncthreads();  // this step has been stored by all threads, and none reads the buffer that is filled next
    if (k + Tile::depth < tile.k1) fetch(k + Tile::depth);
    multiply_parts<AAlongK, BAlongK, Parts>(shared.stage[stage], row, column, lane, sum);
  }
  store_sums<16, 16, 0, 4>(plan, tile, sum, row, column, lane, epilogue);
}

template <int Parts>
struct PartsKernels {
  static constexpr int rows = PartsStep::side, columns = rows, depth = PartsStep::depth;
  static int64_t pieces(int64_t tiles, int64_t k) { return pieces_that_fill(tiles, k); }
  template <class Epilogue>
  static void launch(const MatmulPlan<float, float>& plan, const Epilogue& epilogue) {
    const auto run = [&](auto kernel) {
      cuda::launch({"matmul", blocks_of(plan), matmul_threads, sizeof(PartsTile<Parts>)}, kernel, plan, epilogue);
    };
    const bool a = !plan.product.a.transposed, b = plan.product.b.transposed;  // along k
    if (a && b) return run(parts_kernel<Parts, true, true, Epilogue>);
    if (a) return run(parts_kernel<Parts, true, false, Epilogue>);
    if (b) return run(parts_kernel<Parts, false, true, Epilogue>);
    run(parts_kernel<Parts, false, false, Epilogue>);
  }
};

}  // namespace orrery::cuda
