// C = A B on a GPU, f32 and f64, without tensor cores.
//
// A block of 256 threads computes a tile of Side x Side elements of C. It loops over k in steps of
// `depth`. Each step copies depth columns of A and depth rows of B to shared memory, as [k][mn],
// where mn is the row or column of C. Then every thread adds depth outer products in registers:
//
//              columns of C                 The threads form a grid of 16 x 16.  A thread holds `groups` x `groups`
//            +--------+--------+            squares of `vector` x `vector` elements, each at the thread's position
//   rows     | .t.... | .t.... |            in one quarter of the tile, and reads its `groups` vectors of A and of B
//   of C     +--------+--------+            with 16-byte loads.  A warp is 4 x 8 threads: its loads of B are side by
//            | .t.... | .t.... |            side, those of A are four vectors that eight threads share each.
//            +--------+--------+
//
// Shared memory holds two steps: one is multiplied while cp.async copies the next. One barrier per
// step suffices: after it all threads' copies of this step are complete, and no thread reads the
// buffer that is filled next.
//
// Copies have 16 bytes if the operand's rows run along mn and are aligned; else 1 element,
// transposed if rows run along k. Beyond the edges cp.async writes zeros, which add nothing.
//
// If few tiles and a long k would leave most of the GPU idle, separate blocks sum each K split, and
// a second kernel adds the splits in order. The splits, and so the bits, depend on the sizes alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cuda/matmul/epilogue.cuh"
#include "cuda/matmul/matmul.h"
#include "cuda/matmul/split_k.cuh"
#include "cuda/matmul/tensor_core.cuh"
#include "cuda/runtime/launch.cuh"
#include "engine/types/dtype.h"

namespace orrery::cuda {

inline constexpr int matmul_depth = 16;

template <class T, int Side>
struct MatmulTile {
  static constexpr int vector = 16 / sizeof(T), of_thread = Side / 16, groups = of_thread / vector;
  static constexpr int pitch = Side + vector;  // fewer bank conflicts in copies that transpose

  static constexpr int blocks_at_once = of_thread > 4 ? 1 : 2;  // per multiprocessor, limited by registers

  using Steps = T[matmul_depth][pitch];
  alignas(16) Steps a[2];
  alignas(16) Steps b[2];
};

// The distribution of a product over blocks. Block numbers run down sixteen tiles of a column, then
// over the columns of this band of tiles, the bands, the K splits and the batch. So concurrent
// blocks share rows of A and columns of B, which are then in the L2 cache.
template <class T, class Result>
struct MatmulPlan {
  Matmul<T, Result> product;
  int64_t tiles_down, tiles_across;
  int64_t splits, length;     // K splits; the length of each in k, a multiple of `depth`
  bool vectors_a, vectors_b;  // rows begin at multiples of 16 bytes
  bool vectors_c;             // rows of C and of the epilogue's arrays, too
  int64_t begins[4];          // first column of each output in B
};

inline __host__ __device__ int64_t matmul_tiles(int64_t n, int64_t side) { return (n + side - 1) / side; }

// The matrix with column `column` of A's stored rows, and its first and end column.
template <class T>
struct PartOfA {
  const T* data;
  int64_t stride, begin, end;
  template <class Result>
  static __device__ PartOfA at(const Matmul<T, Result>& p, int64_t column) {
    const auto& parts = p.a_parts;
    if (!std::is_same_v<T, bf16> || parts[0].columns == 0)
      return {p.a.data, p.a.row_stride, 0, p.a.transposed ? p.m : p.k};
    int64_t begin = 0;
    int i = 0;
    for (; i < 3 && column >= begin + parts[i].columns; ++i) begin += parts[i].columns;
    return {parts[i].data, parts[i].row_stride, begin, begin + parts[i].columns};
  }
};
// Returns the number of tiles down C. Parts of A that are side by side in C's rows have separate tiles.
template <class T, class Result>
int64_t tiles_down(const Matmul<T, Result>& p, int64_t rows) {
  if (p.a_parts[0].columns == 0 || !p.a.transposed) return matmul_tiles(p.m, rows);
  int64_t tiles = 0;
  for (const auto& part : p.a_parts) tiles += matmul_tiles(part.columns, rows);
  return tiles;
}

// The work of a block.
template <class T>
struct BlockTile {
  int output;
  int batch, split;
  // The tile's row in its matrix and column in its output; the output's first column in the product.
  int64_t row, column, first_column;
  int rows_left, columns_left;  // before the edges
  int64_t k0, k1;               // its K split
  const T *a, *b;               // first elements of the first step
  int64_t stride_a;             // of A's stored rows

  // Index: the type of the divisions. A GPU divides 32-bit integers several times faster than 64-bit ones.
  template <int Rows, int Columns, class Index = int64_t, class Result>
  static __device__ BlockTile of(const MatmulPlan<T, Result>& plan, std::type_identity_t<Index> block) {
    constexpr Index band = 16;
    const Matmul<T, Result>& p = plan.product;
    BlockTile t;
    const auto tiles_down = static_cast<Index>(plan.tiles_down), across = static_cast<Index>(plan.tiles_across);
    const auto splits = static_cast<Index>(plan.splits);
    const Index tiles = tiles_down * across, tile_in_matrix = block % tiles;
    block /= tiles;
    t.split = static_cast<int>(block % splits), t.batch = static_cast<int>(block / splits);
    const Index first = tile_in_matrix / (band * across) * band;
    const Index in_band = tile_in_matrix - first * across;
    const Index down = tiles_down - first < band ? tiles_down - first : band;
    Index tile_down = first + in_band % down;
    int64_t before = 0;  // rows of C
    for (int i = 0; std::is_same_v<T, bf16> && p.a_parts[0].columns && p.a.transposed && i < 3; ++i) {
      const auto tiles_of_part = static_cast<Index>(matmul_tiles(p.a_parts[i].columns, Rows));
      if (tile_down < tiles_of_part) break;
      tile_down -= tiles_of_part, before += p.a_parts[i].columns;
    }
    t.row = before + int64_t{tile_down} * Rows;
    t.column = int64_t{in_band / down} * Columns;
    t.output = 0, t.first_column = 0;
    for (; t.column >= (p.c[t.output].columns + Columns - 1) / Columns * Columns; ++t.output) {
      t.column -= (p.c[t.output].columns + Columns - 1) / Columns * Columns;
      t.first_column += p.c[t.output].columns;
    }
    const int64_t columns = p.c[t.output].columns, b0 = plan.begins[t.output] + t.column;
    t.columns_left = static_cast<int>(columns - t.column < Columns ? columns - t.column : Columns);
    t.k0 = t.split * plan.length;
    t.k1 = t.k0 + plan.length < p.k ? t.k0 + plan.length : p.k;
    const auto part = PartOfA<T>::at(p, p.a.transposed ? t.row : t.k0);
    const int64_t rows_end = p.a.transposed ? part.end : p.m;
    t.rows_left = static_cast<int>(rows_end - t.row < Rows ? rows_end - t.row : Rows);
    t.stride_a = part.stride;
    t.a = part.data + t.batch * p.a.batch_stride +
          (p.a.transposed ? t.k0 * part.stride + t.row - part.begin : t.row * part.stride + t.k0 - part.begin);
    t.b = p.b.data + t.batch * p.b.batch_stride +
          (p.b.transposed ? b0 * p.b.row_stride + t.k0 : t.k0 * p.b.row_stride + b0);
    return t;
  }
  // Returns the output with the tile, or the buffer for the sums of its K split.
  template <class Result>
  __device__ Result* c(const Matmul<T, Result>& p) const {
    return p.c[output].data + int64_t{split} * p.batch * p.m * p.n;  // with one split, C itself
  }
};

// Starts the copies of one step: tile[k][mn] = element (mn, k) of the operand. `data`: the
// step's first element; `mn_count` and `depth`: counts of mn and k before the edge.
template <class T, int Side>
__device__ void fetch_step(typename MatmulTile<T, Side>::Steps& tile, const T* data, int64_t stride, bool along_k,
                           bool vectors, int mn_count, int depth) {
  constexpr int vector = MatmulTile<T, Side>::vector, size = static_cast<int>(sizeof(T));
  const int thread = static_cast<int>(threadIdx.x);
  if (vectors) {
    constexpr int across = Side / vector, step = matmul_threads / across;
    const int mn = thread % across * vector, left = mn_count - mn;
    const int valid = (left < 0 ? 0 : left > vector ? vector : left) * size;
#pragma unroll
    for (int i = 0; i < matmul_depth / step; ++i) {
      const int k = thread / across + i * step;
      const bool present = k < depth && valid > 0;
      cp_async<16>(&tile[k][mn], present ? data + k * stride + mn : data, present ? valid : 0);
    }
    return;
  }
  constexpr int copies = Side * matmul_depth / matmul_threads;
  const int mn = along_k ? thread / matmul_depth : thread % Side;
  const int k = along_k ? thread % matmul_depth : thread / Side;
  const int next_mn = along_k ? matmul_threads / matmul_depth : 0, next_k = along_k ? 0 : matmul_threads / Side;
  const T* const from = along_k ? data + mn * stride + k : data + k * stride + mn;
  const int64_t next = along_k ? next_mn * stride : next_k * stride;
#pragma unroll
  for (int i = 0; i < copies; ++i) {
    const int p = mn + i * next_mn, q = k + i * next_k;
    const bool present = p < mn_count && q < depth;
    cp_async<size>(&tile[q][p], present ? from + i * next : data, present ? size : 0);
  }
}

// sum += the outer products of one step, at this thread's rows and columns.
template <class T, int Side, int N>
__device__ void multiply_step(const typename MatmulTile<T, Side>::Steps& a,
                              const typename MatmulTile<T, Side>::Steps& b, int row, int column, T (&sum)[N][N]) {
  constexpr int vector = MatmulTile<T, Side>::vector, groups = MatmulTile<T, Side>::groups;
  using Vector = Vector<T, vector>;
#pragma unroll
  for (int k = 0; k < matmul_depth; ++k) {
    Vector of_a[groups], of_b[groups];
#pragma unroll
    for (int g = 0; g < groups; ++g) {
      of_a[g] = *reinterpret_cast<const Vector*>(&a[k][g * 16 * vector + row]);
      of_b[g] = *reinterpret_cast<const Vector*>(&b[k][g * 16 * vector + column]);
    }
#pragma unroll
    for (int i = 0; i < N; ++i)
#pragma unroll
      for (int j = 0; j < N; ++j) sum[i][j] += of_a[i / vector].value[i % vector] * of_b[j / vector].value[j % vector];
  }
}

// Stores a row of a thread's square: N elements from `element` on, at most `columns_left`.
template <class T, int N, class Epilogue>
__device__ void store_row(const MatmulPlan<T, T>& plan, T* c, int64_t element, const T* sum, int64_t columns_left,
                          int64_t column_of_product, const Epilogue& epilogue) {
  if (columns_left <= 0) return;
  T* const to = c + element;
  [[maybe_unused]] T* second = nullptr;
  if constexpr (FillsSecond<Epilogue>) second = epilogue.second + element;
  if (plan.vectors_c) {
    Vector<T, N> all, seconds;
    if (plan.product.accumulate) all = *reinterpret_cast<const Vector<T, N>*>(to);
#pragma unroll
    for (int e = 0; e < N; ++e) {
      const auto done = finish<T>(epilogue, plan.product.accumulate ? all.value[e] + sum[e] : sum[e],
                                  column_of_product + e, element + e);
      all.value[e] = done.stored, seconds.value[e] = done.second;
    }
    *reinterpret_cast<Vector<T, N>*>(to) = all;
    if constexpr (FillsSecond<Epilogue>) *reinterpret_cast<Vector<T, N>*>(second) = seconds;
    return;
  }
#pragma unroll
  for (int e = 0; e < N; ++e) {
    if (e >= columns_left) break;
    const auto done =
        finish<T>(epilogue, plan.product.accumulate ? to[e] + sum[e] : sum[e], column_of_product + e, element + e);
    to[e] = done.stored;
    if constexpr (FillsSecond<Epilogue>) second[e] = done.second;
  }
}

template <class T, int Side, class Epilogue>
__global__ void __launch_bounds__(matmul_threads, MatmulTile<T, Side>::blocks_at_once)
    matmul_kernel(const __grid_constant__ MatmulPlan<T, T> plan, const __grid_constant__ Epilogue epilogue) {
  using Tile = MatmulTile<T, Side>;
  constexpr int N = Tile::of_thread, vector = Tile::vector;
  Tile& shared = shared_memory<Tile>();
  const Matmul<T>& p = plan.product;
  BlockTile<T> tile = BlockTile<T>::template of<Side, Side>(plan, blockIdx.x);
  const int64_t stride_a = p.a.row_stride, stride_b = p.b.row_stride;
  const int64_t next_a = p.a.transposed ? matmul_depth * stride_a : matmul_depth;
  const int64_t next_b = p.b.transposed ? matmul_depth : matmul_depth * stride_b;
  const bool vectors_a = plan.vectors_a && p.a.transposed, vectors_b = plan.vectors_b && !p.b.transposed;
  const auto fetch = [&](int64_t k, int buffer) {
    const int depth = static_cast<int>(tile.k1 - k < matmul_depth ? tile.k1 - k : matmul_depth);
    fetch_step<T, Side>(shared.a[buffer], tile.a, stride_a, !p.a.transposed, vectors_a, tile.rows_left, depth);
    fetch_step<T, Side>(shared.b[buffer], tile.b, stride_b, p.b.transposed, vectors_b, tile.columns_left, depth);
    cp_async_commit();
    tile.a += next_a, tile.b += next_b;
  };

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row = (warp / 2 * 4 + lane / 8) * vector, column = (warp % 2 * 8 + lane % 8) * vector;
  T sum[N][N] = {};
  int buffer = 0;
  wait_for_earlier();
  if (tile.k0 < tile.k1) fetch(tile.k0, buffer);
  for (int64_t k = tile.k0; k < tile.k1; k += matmul_depth, buffer ^= 1) {
    cp_async_wait<0>();
    __syncthreads();  // this step has arrived from all threads, and none reads the other buffer any more
    if (k + matmul_depth < tile.k1) fetch(k + matmul_depth, buffer ^ 1);
    multiply_step<T, Side>(shared.a[buffer], shared.b[buffer], row, column, sum);
  }

  allow_next();
  T* const c = tile.c(p);
  const int64_t columns = p.c[tile.output].columns;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int64_t r = tile.row + i / vector * 16 * vector + row + i % vector;
    if (r >= p.m) break;
#pragma unroll
    for (int g = 0; g < Tile::groups; ++g) {
      const int64_t first = tile.column + g * 16 * vector + column;
      store_row<T, vector>(plan, c, (tile.batch * p.m + r) * columns + first, &sum[i][g * vector], columns - first,
                           tile.first_column + first, epilogue);
    }
  }
}

// ---- the plan, a function of sizes and alignment

template <class E>
bool aligned_rows(const E* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride * static_cast<int64_t>(sizeof(E)) % 16 == 0;
}
// Returns the number of tiles across all outputs of C.
template <class T, class Result>
int64_t tiles_across(const Matmul<T, Result>& p, int64_t columns) {
  int64_t tiles = 0;
  for (const auto& output : p.c) tiles += matmul_tiles(output.columns, columns);
  return tiles;
}
template <class Kernels>
concept SplitsK = requires {
  Kernels::splits(int64_t{}, int64_t{});
};
inline constexpr int64_t min_split_length = 256;  // indices of k per split
// Returns the number of K splits that give a GPU enough blocks; 0 or 1: none.
inline int64_t splits_that_fill(int64_t tiles, int64_t k) {
  constexpr int64_t enough_blocks = 256;
  return std::min(enough_blocks / tiles, k / min_split_length);
}
// Vectors are stored if the arrays of C and of the epilogue are aligned.
template <class Kernels, class T, class Result, class Epilogue>
MatmulPlan<T, Result> plan_of(const Matmul<T, Result>& p, const Epilogue& epilogue) {
  constexpr int64_t Depth = Kernels::depth;
  MatmulPlan<T, Result> plan{
      p, tiles_down(p, Kernels::rows), tiles_across(p, Kernels::columns), 1, p.k, false, false, true, {}};
  int64_t wanted = 1;
  if constexpr (SplitsK<Kernels>) wanted = Kernels::splits(plan.tiles_down * plan.tiles_across * p.batch, p.k);
  if (wanted > 1) {
    plan.length = matmul_tiles(p.k, wanted * Depth) * Depth;
    plan.splits = matmul_tiles(p.k, plan.length);
  }
  plan.vectors_a = aligned_rows(p.a.data, p.a.row_stride) && aligned_rows(p.a.data, p.a.batch_stride);
  for (const auto& part : p.a_parts)
    if (part.columns) plan.vectors_a = plan.vectors_a && aligned_rows(part.data, part.row_stride);
  plan.vectors_b = aligned_rows(p.b.data, p.b.row_stride) && aligned_rows(p.b.data, p.b.batch_stride);
  plan.vectors_c = aligned_rows(epilogue.per_column, 0) && aligned_rows(epilogue.per_element, p.n);
  if constexpr (FillsSecond<Epilogue>) plan.vectors_c = plan.vectors_c && aligned_rows(epilogue.second, p.n);
  int64_t first_column = 0;
  for (int i = 0; i < 4; ++i) {
    const auto& output = p.c[i];
    plan.begins[i] = first_column;
    if (output.columns == 0) continue;
    const bool begins_aligned = p.b.transposed || aligned_rows(p.b.data, first_column);
    plan.vectors_b = plan.vectors_b && begins_aligned;
    plan.vectors_c =
        plan.vectors_c && aligned_rows(output.data, output.columns) && aligned_rows(epilogue.per_column, first_column);
    first_column += output.columns;
  }
  return plan;
}

// Kernels: a kernel, its tile and its launch.
//   static constexpr int rows, columns, depth;
//   static int64_t splits(int64_t tiles, int64_t k);   maximum of K splits; it determines bits, so it is a
//                                                      function of sizes. Without it k is never split
//   template <class Result, class Epilogue> static void launch(const MatmulPlan<T, Result>&, const Epilogue&);
// Fused: the product's kernel calls the epilogue unless k is split. Not Fused: the kernel that adds
// K splits always calls it.
template <class Kernels, class T>
void launch_sums(const MatmulPlan<T, Arithmetic<T>>& plan);  // without an epilogue: compiled once, in matmul.cu
template <class Kernels, class T, class Result, class Epilogue>
void run_split_k(const MatmulPlan<T, Result>& plan, const Epilogue& epilogue) {
  using Sum = Arithmetic<T>;
  constexpr int64_t max_blocks = 2048;  // blocks of the second kernel
  const Matmul<T, Result>& p = plan.product;
  const int64_t elements = p.batch * p.m * p.n, row_sums = p.row_sums ? p.m : 0;
  const Workspace workspace(plan.splits * (elements + row_sums) * static_cast<int64_t>(sizeof(Sum)));
  Sum* const sums = static_cast<Sum*>(workspace.data());
  Matmul<T, Sum> split_product{p.m, p.n, p.k, p.batch, p.a, p.b, {{sums, p.n}}, false, nullptr, nullptr};
  if (p.row_sums) split_product.row_sums = sums + plan.splits * elements;
  MatmulPlan<T, Sum> splits = plan_of<Kernels>(split_product, Plain<Sum>{});
  splits.splits = plan.splits, splits.length = plan.length;
  launch_sums<Kernels, T>(splits);
  constexpr int64_t vector = 16 / static_cast<int64_t>(sizeof(Sum));
  const int64_t elements_per_thread = plan.vectors_c ? vector : 1;
  const int64_t blocks = std::min(matmul_tiles(elements / elements_per_thread, matmul_threads), max_blocks);
  launch({"matmul: split-K", static_cast<unsigned>(blocks), matmul_threads}, add_splits_kernel<T, Result, Epilogue>, p,
         sums, plan.splits, plan.vectors_c, epilogue);
}
template <class Kernels, bool Fused = true, class T, class Result, class Epilogue>
void run_matmul(const Matmul<T, Result>& p, const Epilogue& epilogue) {
  const MatmulPlan<T, Result> plan = plan_of<Kernels>(p, epilogue);
  if constexpr (Fused)
    if (plan.splits == 1) return Kernels::launch(plan, epilogue);
  if constexpr (SplitsK<Kernels>) run_split_k<Kernels>(plan, epilogue);
}

template <class T, class Result>
unsigned blocks_of(const MatmulPlan<T, Result>& plan) {
  return static_cast<unsigned>(plan.tiles_down * plan.tiles_across * plan.splits * plan.product.batch);
}

template <class T, int Side>
struct PlainKernels {
  static constexpr int rows = Side, columns = Side, depth = matmul_depth;
  static int64_t splits(int64_t tiles, int64_t k) { return splits_that_fill(tiles, k); }
  template <class Epilogue>
  static void launch(const MatmulPlan<T, T>& plan, const Epilogue& epilogue) {
    cuda::launch({"matmul", blocks_of(plan), matmul_threads, sizeof(MatmulTile<T, Side>)},
                 matmul_kernel<T, Side, Epilogue>, plan, epilogue);
  }
};

// Returns true if large tiles, which read f32 elements less often, are enough to fill the GPU.
inline bool large_tiles_fill_the_gpu(const Matmul<float>& p) {
  constexpr int64_t blocks = 128, length = 512;
  return matmul_tiles(p.m, 128) * matmul_tiles(p.n, 128) * p.batch * std::max<int64_t>(1, p.k / length) >= blocks;
}

}  // namespace orrery::cuda
