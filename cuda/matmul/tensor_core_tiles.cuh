// C = A B for bf16 on tensor cores, with sums in f32.
//
// A block of eight warps makes a tile of 128 x 128 elements of C, a warp 64 x 32 of it: 4 x 4 products of 16 x 8, whose
// sums it holds in registers.  It walks along k in steps of 32, each two products of depth 16.
//
// Steps lie in shared memory as the operands are stored, [place][k] where rows run along k and [k][place] where they
// run along the places; ldmatrix turns round what must be.  The pitch of the rows puts the eight rows that ldmatrix
// reads at once in different banks.
//
// Three steps are in shared memory: one is multiplied, cp.async brings the next two.  One barrier per step does both
// duties: what all threads have copied for this step is there, and no thread still reads the buffer that is filled
// next. Operands whose rows do not begin at multiples of 16 bytes are brought by plain loads and stores; the same
// barrier orders them.
#pragma once

#include "cuda/matmul/matmul.cuh"

namespace orrery::cuda {

// One step of an operand.
template <int Depth>
struct alignas(16) TensorCoreStep {
  static constexpr int side = 128, depth = Depth, chunk = 8;  // a chunk is 16 bytes
  template <bool AlongK>
  static constexpr int pitch = (AlongK ? depth : side) + chunk;
  static_assert(side * pitch<true> >= depth * pitch<false>);
  bf16 element[side * pitch<true>];
};

struct TensorCoreTile {
  static constexpr int side = 128, depth = 32, stages = 3;
  using Step = TensorCoreStep<depth>;
  Step a[stages], b[stages];
};

// Starts the copies of one step.  `data` points at its first element; `places` and `depth` are how many there are
// before the edge.
template <bool AlongK>
__device__ void fetch_step(TensorCoreTile::Step& step, const bf16* data, int64_t stride, bool vectors, int places,
                           int depth) {
  using Tile = TensorCoreTile::Step;
  constexpr int rows = AlongK ? Tile::side : Tile::depth, chunks = (AlongK ? Tile::depth : Tile::side) / Tile::chunk;
  constexpr int pitch = Tile::pitch<AlongK>;
  const int rows_left = AlongK ? places : depth, columns_left = AlongK ? depth : places;
#pragma unroll
  for (int i = 0; i < rows * chunks / matmul_threads; ++i) {
    const int all = static_cast<int>(threadIdx.x) + i * matmul_threads;
    const int row = all / chunks, column = all % chunks * Tile::chunk, left = columns_left - column;
    const int valid = row >= rows_left || left < 0 ? 0 : left > Tile::chunk ? Tile::chunk : left;
    bf16* const to = step.element + row * pitch + column;
    const bf16* const from = data + row * stride + column;
    if (vectors) {
      cp_async<16>(to, valid ? from : data, valid * static_cast<int>(sizeof(bf16)));
    } else {
#pragma unroll 1
      for (int e = 0; e < Tile::chunk; ++e) to[e] = e < valid ? from[e] : bf16(0.f);
    }
  }
}

// Registers of A (16 rows from `place`, 16 of k) and of B (16 columns from `place`, 16 of k: those of two products).
template <bool AlongK, int Depth>
__device__ void load_a(uint32_t (&a)[4], const TensorCoreStep<Depth>& step, int place, int k, int lane) {
  constexpr int pitch = TensorCoreStep<Depth>::template pitch<AlongK>;
  if constexpr (AlongK)
    load_matrices<false>(a, step.element + (place + lane % 16) * pitch + k + lane / 16 * 8);
  else
    load_matrices<true>(a, step.element + (k + lane / 16 * 8 + lane % 8) * pitch + place + lane / 8 % 2 * 8);
}
template <bool AlongK, int Depth>
__device__ void load_b(uint32_t (&b)[4], const TensorCoreStep<Depth>& step, int place, int k, int lane) {
  constexpr int pitch = TensorCoreStep<Depth>::template pitch<AlongK>;
  if constexpr (AlongK)
    load_matrices<false>(b, step.element + (place + lane / 16 * 8 + lane % 8) * pitch + k + lane / 8 % 2 * 8);
  else
    load_matrices<true>(b, step.element + (k + lane % 16) * pitch + place + lane / 16 * 8);
}

// sum += the products of one step, for the warp's rows and columns.
template <bool AAlongK, bool BAlongK>
__device__ void multiply_step(const TensorCoreTile::Step& a, const TensorCoreTile::Step& b, int row, int column,
                              int lane, float (&sum)[4][4][4]) {
#pragma unroll
  for (int k = 0; k < TensorCoreTile::depth; k += 16) {
    uint32_t of_b[2][4];
#pragma unroll
    for (int j = 0; j < 2; ++j) load_b<BAlongK>(of_b[j], b, column + j * 16, k, lane);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t of_a[4];
      load_a<AAlongK>(of_a, a, row + i * 16, k, lane);
#pragma unroll
      for (int j = 0; j < 4; ++j) mma_m16n8k16(sum[i][j], of_a, &of_b[j / 2][j % 2 * 2]);
    }
  }
}

// Two neighbours of C.
template <class Result>
struct alignas(2 * sizeof(Result)) Pair {
  Result value[2];
};
template <class Result, class Epilogue>
__device__ void store_pair(Result* to, const float* sum, Place at, int64_t columns, bool accumulate, bool vectors,
                           const Epilogue& epilogue) {
  if (at.column >= columns) return;
  Pair<Result> both, seconds;
  [[maybe_unused]] Result* second = nullptr;
  if constexpr (FillsSecond<Epilogue>) second = epilogue.second + at.row * columns + at.column;
#pragma unroll
  for (int e = 0; e < 2; ++e, ++at.column, ++at.column_of_product) {
    if (at.column >= columns) break;
    const float value = accumulate ? static_cast<float>(to[e]) + sum[e] : sum[e];
    const auto done = finish<Result>(epilogue, value, at);
    both.value[e] = done.kept, seconds.value[e] = done.second;
    if (vectors) continue;
    to[e] = done.kept;
    if constexpr (FillsSecond<Epilogue>) second[e] = done.second;
  }
  if (!vectors) return;
  *reinterpret_cast<Pair<Result>*>(to) = both;
  if constexpr (FillsSecond<Epilogue>) *reinterpret_cast<Pair<Result>*>(second) = seconds;
}

// The warp's rows and columns of C.
template <class T, class Result, class Epilogue>
__device__ void store_sums(const MatmulPlan<T, Result>& plan, const BlockTile<T>& tile, const float (&sum)[4][4][4],
                           int row, int column, int lane, const Epilogue& epilogue) {
  const Matmul<T, Result>& p = plan.product;
  Result* const c = tile.c(p);
  const int64_t columns = p.c[tile.part].columns;
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t r = tile.row + row + i * 16 + half * 8 + lane / 4, all = tile.batch * p.m + r;
      if (r >= p.m) continue;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int64_t at = tile.column + column + j * 8 + lane % 4 * 2;
        store_pair(c + all * columns + at, &sum[i][j][2 * half], {all, at, tile.first_column + at}, columns,
                   p.accumulate, plan.vectors_c, epilogue);
      }
    }
}

template <bool AAlongK, bool BAlongK, class Result, class Epilogue>
__global__ void __launch_bounds__(matmul_threads, 2)
    tensor_core_kernel(const __grid_constant__ MatmulPlan<bf16, Result> plan,
                       const __grid_constant__ Epilogue epilogue) {
  using Tile = TensorCoreTile;
  Tile& shared = shared_memory<Tile>();
  const Matmul<bf16, Result>& p = plan.product;
  BlockTile<bf16> tile = BlockTile<bf16>::template of<Tile::side>(plan, blockIdx.x);
  const int64_t next_a = AAlongK ? Tile::depth : Tile::depth * p.a.row_stride;
  const int64_t next_b = BAlongK ? Tile::depth : Tile::depth * p.b.row_stride;
  const auto fetch = [&](int64_t k, int stage) {
    if (k < tile.k1) {
      const int depth = static_cast<int>(tile.k1 - k < Tile::depth ? tile.k1 - k : Tile::depth);
      fetch_step<AAlongK>(shared.a[stage], tile.a, p.a.row_stride, plan.vectors_a, tile.rows_left, depth);
      fetch_step<BAlongK>(shared.b[stage], tile.b, p.b.row_stride, plan.vectors_b, tile.columns_left, depth);
      tile.a += next_a, tile.b += next_b;
    }
    cp_async_commit();  // an empty group too: waits count groups
  };

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row = warp / 4 * 64, column = warp % 4 * 32;
  float sum[4][4][4] = {};
  int stage = 0;
  for (int s = 0; s < Tile::stages - 1; ++s) fetch(tile.k0 + s * Tile::depth, s);
  for (int64_t k = tile.k0; k < tile.k1; k += Tile::depth) {
    cp_async_wait<Tile::stages - 2>();
    __syncthreads();  // this step has arrived from all threads, and none reads the buffer that is filled next
    fetch(k + (Tile::stages - 1) * Tile::depth, (stage + Tile::stages - 1) % Tile::stages);
    multiply_step<AAlongK, BAlongK>(shared.a[stage], shared.b[stage], row, column, lane, sum);
    stage = (stage + 1) % Tile::stages;
  }
  store_sums(plan, tile, sum, row, column, lane, epilogue);
}

struct TensorCoreKernels {
  static constexpr int side = TensorCoreTile::side, depth = TensorCoreTile::depth;
  template <class Result, class Epilogue>
  static void launch(const MatmulPlan<bf16, Result>& plan, const Epilogue& epilogue) {
    const auto run = [&](auto kernel) {
      cuda::launch({"matmul", blocks_of(plan), matmul_threads, sizeof(TensorCoreTile)}, kernel, plan, epilogue);
    };
    if constexpr (OfOneForm<Epilogue>) {
      run(tensor_core_kernel<true, Epilogue::b_transposed, Result, Epilogue>);
    } else {
      const bool a = !plan.product.a.transposed, b = plan.product.b.transposed;  // along k
      if (a && b) return run(tensor_core_kernel<true, true, Result, Epilogue>);
      if (a) return run(tensor_core_kernel<true, false, Result, Epilogue>);
      if (b) return run(tensor_core_kernel<false, true, Result, Epilogue>);
      run(tensor_core_kernel<false, false, Result, Epilogue>);
    }
  }
};

}  // namespace orrery::cuda
