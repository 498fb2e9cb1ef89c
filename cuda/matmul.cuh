// C = A B on a GPU, f32 and f64, without tensor cores.
//
// A block of 256 threads makes a tile of Side x Side elements of C.  It walks along k in steps of `depth`.  For each
// step it brings depth columns of A and depth rows of B to shared memory, both as [k][place], where place is the row of
// C or its column; then every thread adds up depth outer products in registers:
//
//              columns of C                 The threads stand in a grid of 16 x 16.  A thread holds `groups` x `groups`
//            +--------+--------+            squares of `vector` x `vector` elements, each square at the thread's place
//   rows     | .t.... | .t.... |            in one quarter of the tile, and reads its `groups` vectors of A and of B
//   of C     +--------+--------+            with 16-byte loads.  A warp is 4 x 8 threads: its loads of B lie side by
//            | .t.... | .t.... |            side, those of A are four vectors that eight threads share each.
//            +--------+--------+
//
// Two steps are in shared memory: while one is multiplied, cp.async brings the next.  One barrier per step does both
// duties: what all threads have copied for this step is there, and nobody still reads the buffer that is filled next.
//
// Where the operand's rows run along the places and are aligned, copies take 16 bytes; else they take one element, and
// turn the operand round on the way if it runs along k.  Beyond the edges cp.async writes zeros, which add nothing.
//
// Few tiles and a long k leave most of the card idle: then k is cut into pieces, each summed by blocks of its own, and
// a second kernel adds the pieces in order.  The cut is a function of the sizes alone, and so are the bits.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/launch.cuh"
#include "cuda/matmul.h"
#include "cuda/tensor_core.cuh"

namespace orrery::cuda {

inline constexpr int matmul_threads = 256, matmul_depth = 16;

template <class T, int Side>
struct MatmulTile {
  static constexpr int vector = 16 / sizeof(T), of_thread = Side / 16, groups = of_thread / vector;
  static constexpr int pitch = Side + vector;  // so that copies that turn an operand round meet in fewer banks

  static constexpr int blocks_at_once = of_thread > 4 ? 1 : 2;  // per multiprocessor: as many as registers allow

  using Steps = T[matmul_depth][pitch];
  alignas(16) Steps a[2];
  alignas(16) Steps b[2];
};

// What happens to an element when its sum is complete.
struct Place {
  int64_t row, column;  // row counts over the batch; column within the part
  int64_t column_of_product;
};
template <class T>
struct Plain {
  __device__ T operator()(T value, const Place&) const { return value; }
};
template <class T>
struct AddBias {
  const T* bias;
  const T* residual;
  int64_t columns;  // of the residual
  __device__ T operator()(T value, const Place& at) const {
    if (bias) value += bias[at.column_of_product];
    if (residual) value += residual[at.row * columns + at.column];
    return value;
  }
};

// How the product is spread over blocks.  Blocks count down the tiles of a column, then from column to column of tiles,
// then over pieces of k, then over the batch.
template <class T>
struct MatmulPlan {
  Matmul<T> product;
  int64_t tiles_down, tiles_across;
  int64_t pieces, length;     // of k; the length of a piece is a multiple of the depth
  bool vectors_a, vectors_b;  // copies of 16 bytes are possible
  bool vectors_c;             // stores too
};

// Starts the copies of one step: tile[k][place] = element (place, k) of the operand.  `data` points at the step's first
// element; `places` and `depth` are how many there are before the edge.
template <class T, int Side>
__device__ void fetch_step(typename MatmulTile<T, Side>::Steps& tile, const T* data, int64_t stride, bool along_k,
                           bool vectors, int places, int depth) {
  constexpr int vector = MatmulTile<T, Side>::vector, size = static_cast<int>(sizeof(T));
  const int thread = static_cast<int>(threadIdx.x);
  if (vectors) {
    constexpr int across = Side / vector, step = matmul_threads / across;
    const int place = thread % across * vector, left = places - place;
    const int valid = (left < 0 ? 0 : left > vector ? vector : left) * size;
#pragma unroll
    for (int i = 0; i < matmul_depth / step; ++i) {
      const int k = thread / across + i * step;
      const bool present = k < depth && valid > 0;
      cp_async<16>(&tile[k][place], present ? data + k * stride + place : data, present ? valid : 0);
    }
    return;
  }
  constexpr int copies = Side * matmul_depth / matmul_threads;
  const int place = along_k ? thread / matmul_depth : thread % Side;
  const int k = along_k ? thread % matmul_depth : thread / Side;
  const int next_place = along_k ? matmul_threads / matmul_depth : 0, next_k = along_k ? 0 : matmul_threads / Side;
  const T* const from = along_k ? data + place * stride + k : data + k * stride + place;
  const int64_t next = along_k ? next_place * stride : next_k * stride;
#pragma unroll
  for (int i = 0; i < copies; ++i) {
    const int p = place + i * next_place, q = k + i * next_k;
    const bool present = p < places && q < depth;
    cp_async<size>(&tile[q][p], present ? from + i * next : data, present ? size : 0);
  }
}

template <class T, int N>
struct alignas(16) Vector {
  T value[N];
};

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

// One row of one square of a thread: `vector` neighbours.
template <class T, int N, class Epilogue>
__device__ void store_row(const MatmulPlan<T>& plan, T* c, int64_t columns, const T* sum, Place at,
                          const Epilogue& epilogue) {
  if (at.column >= columns) return;
  T* const to = c + at.row * columns + at.column;
  if (plan.vectors_c) {
    Vector<T, N> all;
    if (plan.product.accumulate) all = *reinterpret_cast<const Vector<T, N>*>(to);
#pragma unroll
    for (int e = 0; e < N; ++e, ++at.column, ++at.column_of_product)
      all.value[e] = epilogue(plan.product.accumulate ? all.value[e] + sum[e] : sum[e], at);
    *reinterpret_cast<Vector<T, N>*>(to) = all;
    return;
  }
#pragma unroll
  for (int e = 0; e < N; ++e, ++at.column, ++at.column_of_product)
    if (at.column < columns) to[e] = epilogue(plan.product.accumulate ? to[e] + sum[e] : sum[e], at);
}

template <class T, int Side, class Epilogue>
__global__ void __launch_bounds__(matmul_threads, MatmulTile<T, Side>::blocks_at_once)
    matmul_kernel(const __grid_constant__ MatmulPlan<T> plan, const __grid_constant__ Epilogue epilogue) {
  using Tile = MatmulTile<T, Side>;
  constexpr int N = Tile::of_thread, vector = Tile::vector;
  Tile& shared = shared_memory<Tile>();
  const Matmul<T>& p = plan.product;

  // The tile's place: rows from m0, columns from n0 of one part of C, k from k0.
  int64_t block = blockIdx.x;
  const int64_t m0 = block % plan.tiles_down * Side;
  block /= plan.tiles_down;
  int64_t n0 = block % plan.tiles_across * Side, first_column = 0;
  block /= plan.tiles_across;
  const int64_t piece = block % plan.pieces, batch = block / plan.pieces;
  int part = 0;
  for (; n0 >= (p.c[part].columns + Side - 1) / Side * Side; ++part) {
    n0 -= (p.c[part].columns + Side - 1) / Side * Side;
    first_column += p.c[part].columns;
  }
  const int64_t columns = p.c[part].columns, k0 = piece * plan.length;
  const int64_t k1 = k0 + plan.length < p.k ? k0 + plan.length : p.k;
  const int rows_left = static_cast<int>(p.m - m0 < Side ? p.m - m0 : Side);
  const int columns_left = static_cast<int>(columns - n0 < Side ? columns - n0 : Side);

  const int64_t stride_a = p.a.row_stride, stride_b = p.b.row_stride, b0 = first_column + n0;
  const T* a = p.a.data + batch * p.a.batch_stride + (p.a.transposed ? k0 * stride_a + m0 : m0 * stride_a + k0);
  const T* b = p.b.data + batch * p.b.batch_stride + (p.b.transposed ? b0 * stride_b + k0 : k0 * stride_b + b0);
  const int64_t next_a = p.a.transposed ? matmul_depth * stride_a : matmul_depth;
  const int64_t next_b = p.b.transposed ? matmul_depth : matmul_depth * stride_b;
  const auto fetch = [&](int64_t k, int buffer) {
    const int depth = static_cast<int>(k1 - k < matmul_depth ? k1 - k : matmul_depth);
    fetch_step<T, Side>(shared.a[buffer], a, stride_a, !p.a.transposed, plan.vectors_a, rows_left, depth);
    fetch_step<T, Side>(shared.b[buffer], b, stride_b, p.b.transposed, plan.vectors_b, columns_left, depth);
    cp_async_commit();
    a += next_a, b += next_b;
  };

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row = (warp / 2 * 4 + lane / 8) * vector, column = (warp % 2 * 8 + lane % 8) * vector;
  T sum[N][N] = {};
  int buffer = 0;
  if (k0 < k1) fetch(k0, buffer);
  for (int64_t k = k0; k < k1; k += matmul_depth, buffer ^= 1) {
    cp_async_wait<0>();
    __syncthreads();  // this step has arrived from all threads, and nobody reads the other buffer any more
    if (k + matmul_depth < k1) fetch(k + matmul_depth, buffer ^ 1);
    multiply_step<T, Side>(shared.a[buffer], shared.b[buffer], row, column, sum);
  }

  T* const c = p.c[part].data + piece * p.batch * p.m * p.n;  // with one piece, C itself
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int64_t r = m0 + i / vector * 16 * vector + row + i % vector;
    if (r >= p.m) break;
#pragma unroll
    for (int g = 0; g < Tile::groups; ++g) {
      const int64_t at = n0 + g * 16 * vector + column;
      store_row<T, vector>(plan, c, columns, &sum[i][g * vector], {batch * p.m + r, at, first_column + at}, epilogue);
    }
  }
}

// C from the sums of the pieces of k, in order.
template <class T, class Epilogue>
__global__ void __launch_bounds__(matmul_threads)
    add_pieces_kernel(const __grid_constant__ Matmul<T> p, const T* sums, int64_t pieces, const Epilogue epilogue) {
  const int64_t elements = p.batch * p.m * p.n, step = int64_t{gridDim.x} * matmul_threads;
  for (int64_t i = int64_t{blockIdx.x} * matmul_threads + threadIdx.x; i < elements; i += step) {
    T sum = 0;
    for (int64_t piece = 0; piece < pieces; ++piece) sum += sums[piece * elements + i];
    Place at{i / p.n, i % p.n, i % p.n};
    int part = 0;
    for (; at.column >= p.c[part].columns; ++part) at.column -= p.c[part].columns;
    T& c = p.c[part].data[at.row * p.c[part].columns + at.column];
    c = epilogue(p.accumulate ? c + sum : sum, at);
  }
}

// ---- the plan, a function of sizes and alignment

inline int64_t matmul_tiles(int64_t n, int side) { return (n + side - 1) / side; }

template <class T, int Side>
MatmulPlan<T> plan_of(const Matmul<T>& p) {
  constexpr int64_t enough_blocks = 256, shortest_piece = 256;
  MatmulPlan<T> plan{p, matmul_tiles(p.m, Side), 0, 1, p.k, false, false, true};
  for (const auto& part : p.c) plan.tiles_across += matmul_tiles(part.columns, Side);
  const int64_t tiles = plan.tiles_down * plan.tiles_across * p.batch;
  const int64_t wanted = std::min(enough_blocks / tiles, p.k / shortest_piece);
  if (wanted > 1) {
    plan.length = matmul_tiles(p.k, static_cast<int>(wanted) * matmul_depth) * matmul_depth;
    plan.pieces = (p.k + plan.length - 1) / plan.length;
  }
  const auto aligned = [](const T* data, int64_t stride) {
    constexpr int64_t vector = MatmulTile<T, Side>::vector;
    return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % vector == 0;
  };
  plan.vectors_a = p.a.transposed && aligned(p.a.data, p.a.row_stride) && aligned(p.a.data, p.a.batch_stride);
  plan.vectors_b = !p.b.transposed && aligned(p.b.data, p.b.row_stride) && aligned(p.b.data, p.b.batch_stride);
  int64_t first_column = 0;
  for (const auto& part : p.c) {
    if (part.columns == 0) continue;
    plan.vectors_b = plan.vectors_b && aligned(p.b.data, first_column);  // where the part begins in B
    plan.vectors_c = plan.vectors_c && aligned(part.data, part.columns);
    first_column += part.columns;
  }
  return plan;
}

template <class T, int Side, class Epilogue>
void launch_matmul(const MatmulPlan<T>& plan, const Epilogue& epilogue) {
  const int64_t blocks = plan.tiles_down * plan.tiles_across * plan.pieces * plan.product.batch;
  launch({"matmul", static_cast<unsigned>(blocks), matmul_threads, sizeof(MatmulTile<T, Side>)},
         matmul_kernel<T, Side, Epilogue>, plan, epilogue);
}

template <class T, int Side, class Epilogue>
void run_matmul(const Matmul<T>& p, const Epilogue& epilogue) {
  constexpr int64_t most_blocks = 2048;  // of the second kernel
  const MatmulPlan<T> plan = plan_of<T, Side>(p);
  if (plan.pieces == 1) return launch_matmul<T, Side>(plan, epilogue);
  const int64_t elements = p.batch * p.m * p.n;
  const Workspace workspace(plan.pieces * elements * static_cast<int64_t>(sizeof(T)));
  T* const sums = static_cast<T*>(workspace.data());
  Matmul<T> piecewise = p;
  piecewise.c[0] = {sums, p.n};
  for (int i = 1; i < 4; ++i) piecewise.c[i] = {};
  piecewise.accumulate = false;
  MatmulPlan<T> pieces = plan_of<T, Side>(piecewise);
  pieces.pieces = plan.pieces, pieces.length = plan.length;
  launch_matmul<T, Side>(pieces, Plain<T>{});
  const int64_t blocks = std::min((elements + matmul_threads - 1) / matmul_threads, most_blocks);
  launch({"matmul: pieces", static_cast<unsigned>(blocks), matmul_threads}, add_pieces_kernel<T, Epilogue>, p, sums,
         plan.pieces, epilogue);
}

}  // namespace orrery::cuda
