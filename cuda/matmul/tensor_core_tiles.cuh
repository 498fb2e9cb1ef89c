// C = A B for bf16 on tensor cores, with sums in f32.
//
// A block makes a tile of C of 128 rows and 256 columns, or 128 where there would be few blocks.  A warp makes 64 x 64
// of it: 4 x 8 products of 16 x 8, whose sums it holds in registers.  It walks along k in steps of 32, each two
// products of depth 16.
//
// Steps lie in shared memory as the operands are stored, [place][k] where rows run along k and [k][place] where they
// run along the places; ldmatrix turns round what must be.  Chunks of 16 bytes change places within a row, by an
// exclusive or with a part of the row's number, so that the eight rows that ldmatrix reads at once, and those that
// eight threads write, lie in different banks.
//
// Four steps are in shared memory: one is multiplied, cp.async brings the next three.  One barrier per step does both
// duties: what all threads have copied for this step is there, and no thread still reads the buffer that is filled
// next.  A thread copies the same chunks of each step, so what of them lies within the matrix is asked once, and again
// only where k ends within a step.  Rows begin at multiples of 16 bytes: cuda/matmul/aligned.cuh copies others before.
#pragma once

#include "cuda/matmul/aligned.cuh"
#include "cuda/matmul/matmul.cuh"
#include "cuda/matmul/store.cuh"

namespace orrery::cuda {

inline constexpr int tensor_core_depth = 32;

// One step of an operand with so many places.  Offsets are in bytes.
template <int Places, bool AlongK>
struct TensorCoreStep {
  static constexpr int chunk = 8, chunk_bytes = 16;  // elements
  static constexpr int rows = AlongK ? Places : tensor_core_depth;
  static constexpr int chunks = (AlongK ? tensor_core_depth : Places) / chunk;
  static constexpr int row_bytes = chunks * chunk_bytes, bytes = rows * row_bytes;
  static __device__ int offset(int row, int column_chunk) {
    return row * row_bytes + (column_chunk ^ (AlongK ? row / 2 % 4 : row % 8)) * chunk_bytes;
  }
};

template <int Columns, bool AAlongK, bool BAlongK>
struct TensorCoreTile {
  static constexpr int rows = 128, columns = Columns, stages = 4, warp_side = 64;
  static constexpr int warps_across = columns / warp_side, threads = rows / warp_side * warps_across * 32;
  using A = TensorCoreStep<rows, AAlongK>;
  using B = TensorCoreStep<columns, BAlongK>;
  alignas(128) unsigned char a[stages][A::bytes];
  alignas(128) unsigned char b[stages][B::bytes];
};

// A thread's share of the copies of an operand, from step to step.
template <int Places, bool AlongK, int Threads>
class StepCopies {
  using Step = TensorCoreStep<Places, AlongK>;
  static constexpr int rows_at_once = Threads / Step::chunks, copies = Step::rows / rows_at_once;
  static_assert(rows_at_once % 8 == 0 && Step::rows % rows_at_once == 0);  // a thread's rows are alike in their banks

 public:
  // `data` points at the first element of the first step; `places` are those before the edge.
  __device__ StepCopies(const bf16* data, int64_t stride, int places)
      : row_(static_cast<int>(threadIdx.x) / Step::chunks), chunk_(static_cast<int>(threadIdx.x) % Step::chunks),
        offset_(Step::offset(row_, chunk_)), stride_(static_cast<int>(stride)),
        from_(data + row_ * stride + chunk_ * Step::chunk) {
    for (int i = 0; i < copies; ++i)
      if (AlongK ? row_ + i * rows_at_once < places : chunk_ * Step::chunk < places) present_ |= 1u << i;
  }
  // Starts those of the next step, of which `depth` of k lies before the end.
  __device__ void start(unsigned char* step, int depth) {
    if (depth >= tensor_core_depth) {
#pragma unroll
      for (int i = 0; i < copies; ++i) copy(step, i, present_ >> i & 1 ? Step::chunk_bytes : 0);
    } else {
#pragma unroll 1
      for (int i = 0; i < copies; ++i) {
        const int left = depth - (AlongK ? chunk_ * Step::chunk : row_ + i * rows_at_once);
        const int valid = left <= 0 ? 0 : AlongK && left < Step::chunk ? left * 2 : Step::chunk_bytes;
        copy(step, i, present_ >> i & 1 ? valid : 0);
      }
    }
    from_ += AlongK ? tensor_core_depth : int64_t{tensor_core_depth} * stride_;
  }

 private:
  __device__ void copy(unsigned char* step, int i, int valid) const {
    cp_async<16>(step + offset_ + i * rows_at_once * Step::row_bytes, from_ + int64_t{stride_} * (i * rows_at_once),
                 valid);
  }
  int row_, chunk_, offset_, stride_;
  const bf16* from_;
  unsigned present_ = 0;
};

// Where a lane's address for ldmatrix lies, for 16 places of its warp's 64 and 16 of k.
template <int Places, bool AlongK, bool IsA>
class Fragments {
  using Step = TensorCoreStep<Places, AlongK>;

 public:
  __device__ Fragments(int first_place, int lane) {
    // The matrices of A follow one another down its rows, then along k; those of B along k, then across its columns.
    const int eight_places = IsA ? lane / 8 % 2 : lane / 16, eight_of_k = IsA ? lane / 16 : lane / 8 % 2;
    if constexpr (AlongK)
      offset_ = Step::offset(first_place + eight_places * 8 + lane % 8, eight_of_k);
    else
      offset_ = Step::offset(eight_of_k * 8 + lane % 8, first_place / Step::chunk + eight_places);
  }
  // 16 elements along a row are two chunks, whose number has passed through an exclusive or.
  __device__ void load(uint32_t (&x)[4], const unsigned char* step, int sixteen_places, int sixteen_of_k) const {
    constexpr int next_chunks = 2 * Step::chunk_bytes, next_rows = 16 * Step::row_bytes;
    const int at = AlongK ? (offset_ ^ (sixteen_of_k * next_chunks)) + sixteen_places * next_rows
                          : (offset_ ^ (sixteen_places * next_chunks)) + sixteen_of_k * next_rows;
    load_matrices<!AlongK>(x, step + at);
  }

 private:
  int offset_;
};

// Sums of A's rows: the product of A with ones, which the tiles of C's first columns make on the way.  Each of the
// warps across such a tile takes its share of their 64 rows, 16 at a time.
template <class Tile>
class RowSums {
  static constexpr int groups = Tile::warp_side / 16 / Tile::warps_across;

 public:
  // `first`: the warp's row of the tile
  __device__ RowSums(int first, int warp_across) : first_(first), group_(warp_across * groups) {}

  template <class Fragments>
  __device__ void add(const Fragments& of_a, const unsigned char* step) {
    constexpr uint32_t one = 0x3f80, ones[2] = {one << 16 | one, one << 16 | one};  // of bf16
#pragma unroll
    for (int half = 0; half < tensor_core_depth / 16; ++half)
#pragma unroll
      for (int g = 0; g < groups; ++g) {
        uint32_t a[4];
        of_a.load(a, step, group_ + g, half);
        mma_m16n8k16(sum_[g], a, ones);
      }
  }
  // All columns of such a product are equal: the first lane of each four stores.
  __device__ void store(float* to, int rows_left, bool accumulate, int lane) const {
#pragma unroll
    for (int n = 0; n < 2 * groups; ++n) {
      const int row = first_ + (group_ + n / 2) * 16 + n % 2 * 8 + lane / 4;
      if (lane % 4 == 0 && row < rows_left) to[row] = sum_[n / 2][n % 2 * 2] + (accumulate ? to[row] : 0);
    }
  }

 private:
  int first_, group_;
  float sum_[groups][4] = {};
};

template <int Columns, bool AAlongK, bool BAlongK, class Result, class Epilogue>
__global__ void __launch_bounds__(TensorCoreTile<Columns, AAlongK, BAlongK>::threads, Columns == 128 ? 2 : 1)
    tensor_core_kernel(const __grid_constant__ MatmulPlan<bf16, Result> plan,
                       const __grid_constant__ Epilogue epilogue) {
  using Tile = TensorCoreTile<Columns, AAlongK, BAlongK>;
  Tile& shared = shared_memory<Tile>();
  const Matmul<bf16, Result>& p = plan.product;
  const auto tile = BlockTile<bf16>::template of<Tile::rows, Tile::columns>(plan, blockIdx.x);
  StepCopies<Tile::rows, AAlongK, Tile::threads> copies_of_a(tile.a, p.a.row_stride, tile.rows_left);
  StepCopies<Tile::columns, BAlongK, Tile::threads> copies_of_b(tile.b, p.b.row_stride, tile.columns_left);
  const int depth = static_cast<int>(tile.k1 - tile.k0);
  int left = depth;  // to be fetched
  const auto fetch = [&](int stage) {
    if (left > 0) {
      copies_of_a.start(shared.a[stage], left);
      copies_of_b.start(shared.b[stage], left);
      left -= tensor_core_depth;
    }
    cp_async_commit();  // an empty group too: waits count groups
  };

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row = warp / Tile::warps_across * Tile::warp_side, column = warp % Tile::warps_across * Tile::warp_side;
  const Fragments<Tile::rows, AAlongK, true> of_a(row, lane);
  const Fragments<Tile::columns, BAlongK, false> of_b(column, lane);
  constexpr bool may_sum_rows = !AAlongK && !BAlongK && std::is_same_v<Result, float>;
  const bool sums_rows = may_sum_rows && p.row_sums && tile.part == 0 && tile.column == 0;
  RowSums<Tile> row_sums(row, warp % Tile::warps_across);
  float sum[4][8][4] = {};
  for (int s = 0; s < Tile::stages - 1; ++s) fetch(s);
  int stage = 0, next = Tile::stages - 1;
#pragma unroll 1
  for (int k = 0; k < depth; k += tensor_core_depth) {
    cp_async_wait<Tile::stages - 2>();
    __syncthreads();  // this step has arrived from all threads, and none reads the buffer that is filled next
    fetch(next);
    next = stage;
#pragma unroll
    for (int half = 0; half < tensor_core_depth / 16; ++half) {
      uint32_t b[4][4];
#pragma unroll
      for (int j = 0; j < 4; ++j) of_b.load(b[j], shared.b[stage], j, half);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint32_t a[4];
        of_a.load(a, shared.a[stage], i, half);
#pragma unroll
        for (int j = 0; j < 8; ++j) mma_m16n8k16(sum[i][j], a, &b[j / 2][j % 2 * 2]);
      }
    }
    if constexpr (may_sum_rows)
      if (sums_rows) row_sums.add(of_a, shared.a[stage]);
    stage = stage == Tile::stages - 1 ? 0 : stage + 1;
  }
  if constexpr (may_sum_rows)
    if (sums_rows)
      row_sums.store(p.row_sums + tile.piece * p.m + tile.row, tile.rows_left, p.accumulate_row_sums, lane);
  store_sums(plan, tile, sum, row, column, lane, epilogue);
}

template <int Columns>
struct TensorCoreKernels {
  static constexpr int rows = 128, columns = Columns, depth = tensor_core_depth;
  template <class Result, class Epilogue>
  static void launch(const MatmulPlan<bf16, Result>& plan, const Epilogue& epilogue) {
    const AlignedOperands aligned(plan);
    if constexpr (OfOneForm<Epilogue>)
      return launch_form<true, Epilogue::b_transposed>(aligned.plan(), epilogue);
    else
      launch_any(aligned.plan(), epilogue);
  }

 private:
  template <bool AAlongK, bool BAlongK, class Result, class Epilogue>
  static void launch_form(const MatmulPlan<bf16, Result>& plan, const Epilogue& epilogue) {
    using Tile = TensorCoreTile<Columns, AAlongK, BAlongK>;
    cuda::launch({"matmul", blocks_of(plan), Tile::threads, sizeof(Tile)},
                 tensor_core_kernel<Columns, AAlongK, BAlongK, Result, Epilogue>, plan, epilogue);
  }
  template <class Result, class Epilogue>
  static void launch_any(const MatmulPlan<bf16, Result>& plan, const Epilogue& epilogue) {
    const bool a = !plan.product.a.transposed, b = plan.product.b.transposed;  // along k
    if (a && b) return launch_form<true, true>(plan, epilogue);
    if (a) return launch_form<true, false>(plan, epilogue);
    if (b) return launch_form<false, true>(plan, epilogue);
    launch_form<false, false>(plan, epilogue);
  }
};

// Wide tiles read each element of A less often from the level-2 cache, narrow ones keep more of the card busy.
template <class T, class Result>
bool wide_tiles_fill_the_card(const Matmul<T, Result>& p) {
  constexpr int64_t blocks = 128, piece = 512;
  int64_t across = 0;
  for (const auto& part : p.c) across += matmul_tiles(part.columns, 256);
  return matmul_tiles(p.m, 128) * across * p.batch * std::max<int64_t>(1, p.k / piece) >= blocks && p.n > 128;
}

}  // namespace orrery::cuda
