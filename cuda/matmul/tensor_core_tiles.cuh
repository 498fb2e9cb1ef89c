// C = A B for bf16 on tensor cores, with sums in f32.
//
// There are two implementations, chosen by architecture at compile time. This one runs on all GPUs;
// that of warp groups (cuda/matmul/warp_group_tiles.cuh) has the same tiles, copies and epilogues.
//
// A block computes a tile of C of 128 x 256, or 128 x 128 if there would be few blocks. A warp
// computes 64 x 64: 4 x 8 products of 16 x 8 with sums in registers. It loops over k in steps of
// 32, two products of depth 16. Tiles of 256 x 192, 64 x 96 per warp, use all registers and need
// fewer loads per product. A warp's columns are sixteens that alternate with other warps' sixteens.
//
// Shared memory holds steps as the operands are stored, [mn][k] or [k][mn], where mn is a row
// of A or a column of B; ldmatrix transposes if needed. Chunks of 16 bytes are permuted
// within a row by XOR with part of the row number: so the eight rows that ldmatrix reads at once,
// and those that eight threads write, are in different banks.
//
// Shared memory holds four steps (three of the large tile): one is multiplied while cp.async copies
// the others. One barrier per step suffices: after it all threads' copies of this step are
// complete, and no thread reads the buffer that is filled next. A thread copies the same chunks of
// each step, so bounds are checked once, and again only if k ends within a step. Rows begin at
// multiples of 16 bytes; cuda/matmul/aligned.cuh copies other operands first.
#pragma once

#include "cuda/matmul/aligned.cuh"
#include "cuda/matmul/matmul.cuh"
#include "cuda/matmul/store.cuh"

namespace orrery::cuda {

inline constexpr int tensor_core_depth = 32;
template <int Columns>
inline constexpr int tile_rows = Columns == 192 ? 256 : 128;

// One step of an operand with `MN` rows of A or columns of B. Offsets are in bytes.
template <int MN, bool AlongK>
struct TensorCoreStep {
  static constexpr int chunk = 8, chunk_bytes = 16;  // elements; bytes
  static constexpr int rows = AlongK ? MN : tensor_core_depth;
  static constexpr int chunks = (AlongK ? tensor_core_depth : MN) / chunk;
  static constexpr int row_bytes = chunks * chunk_bytes, bytes = rows * row_bytes;
  static __device__ int offset(int row, int column_chunk) {
    return row * row_bytes + (column_chunk ^ (AlongK ? row / 2 % 4 : row % 8)) * chunk_bytes;
  }
  static constexpr int depth = tensor_core_depth;
  static __host__ __device__ constexpr int mn(int row, int column_chunk) { return AlongK ? row : column_chunk * chunk; }
  static __host__ __device__ constexpr int k(int row, int column_chunk) { return AlongK ? column_chunk * chunk : row; }
};

template <int Columns, bool AAlongK, bool BAlongK>
struct TensorCoreTile {
  static constexpr int rows = tile_rows<Columns>, columns = Columns, stages = Columns == 192 ? 3 : 4;
  static constexpr int warp_rows = 64, warp_columns = Columns == 192 ? 96 : 64;
  static constexpr int warps_across = columns / warp_columns, threads = rows / warp_rows * warps_across * 32;
  static constexpr int apart = 16 * warps_across;  // columns from one sixteen of a warp to the next
  using A = TensorCoreStep<rows, AAlongK>;
  using B = TensorCoreStep<columns, BAlongK>;
  alignas(128) unsigned char a[stages][A::bytes];
  alignas(128) unsigned char b[stages][B::bytes];
};

// The first row and column of a warp in its tile; sixteens of columns alternate between warps.
template <class Tile>
struct WarpOrigin {
  const int thread = in_register(static_cast<int>(threadIdx.x)), lane = thread % 32;
  const int row = thread / 32 / Tile::warps_across * Tile::warp_rows, column = thread / 32 % Tile::warps_across * 16;
};

// A thread's copies of an operand, step by step. Step defines for each chunk (row, column_chunk)
// its offset in shared memory and its content: 8 elements from (mn, k) on, along one of the two.
template <class Step, bool AlongK, int Threads>
class StepCopies {
  // Threads along a row: one for each chunk, or, if their number does not divide Threads, eight,
  // which loop over `per_thread` chunks each.
  static constexpr int across = Threads % Step::chunks == 0 ? Step::chunks : 8, per_thread = Step::chunks / across;
  static constexpr int rows_at_once = Threads / across, copies = Step::rows / rows_at_once * per_thread;
  // All chunks of a thread have equal XOR terms, so one offset serves all.
  static_assert(rows_at_once % 8 == 0 && Step::rows % rows_at_once == 0 && (per_thread == 1 || !AlongK));

 public:
  // `data`: first element of the first step; `mn_count`: number of rows or columns before the edge.
  __device__ StepCopies(const bf16* data, int64_t stride, int mn_count)
      : offset_(Step::offset(row(), chunk())),
        stride_(static_cast<int>(stride)),
        from_(data + element(Step::mn(row(), chunk()), Step::k(row(), chunk()), stride)) {
    for (int i = 0; i < copies; ++i)
      if (Step::mn(row(), chunk()) + mn_of(i) < mn_count) present_ |= 1u << i;
  }
  // Starts the copies of the next step, of which `depth` of k are before the end.
  __device__ void start(unsigned char* step, int depth) {
    if (depth >= Step::depth) {
#pragma unroll
      for (int i = 0; i < copies; ++i) copy(step, i, present_ >> i & 1 ? Step::chunk_bytes : 0, stride_);
    } else {
      // Computed here, so that no register holds it before.
      const int stride = in_register(stride_), first = Step::k(row(), chunk());
#pragma unroll 1
      for (int i = 0; i < copies; ++i) {
        const int left = depth - first - k_of(i);
        const int valid = left <= 0 ? 0 : AlongK && left < Step::chunk ? left * 2 : Step::chunk_bytes;
        copy(step, i, present_ >> i & 1 ? valid : 0, stride);
      }
    }
    from_ += element(0, Step::depth, stride_);
  }
  // Continues with the matrix whose first element of the next step is `data`.
  __device__ void continue_with(const bf16* data, int64_t stride) {
    stride_ = static_cast<int>(stride);
    from_ = data + element(Step::mn(row(), chunk()), Step::k(row(), chunk()), stride);
  }

 private:
  __device__ void copy(unsigned char* step, int i, int valid, int64_t stride) const {
    cp_async<16>(step + offset_ + row_of(i) * Step::row_bytes + chunk_of(i) * Step::chunk_bytes,
                 from_ + element(mn_of(i), k_of(i), stride), valid);
  }
  static __device__ int64_t element(int mn, int k, int64_t stride) {
    return AlongK ? mn * stride + k : k * stride + mn;
  }
  static __device__ int row() { return in_register(static_cast<int>(threadIdx.x)) / across; }
  static __device__ int chunk() { return in_register(static_cast<int>(threadIdx.x)) % across; }
  // Distances from a thread's first copy to copy i.
  static __device__ int row_of(int i) { return i / per_thread * rows_at_once; }
  static __device__ int chunk_of(int i) { return i % per_thread * across; }
  static __device__ int mn_of(int i) { return Step::mn(row_of(i), chunk_of(i)); }
  static __device__ int k_of(int i) { return Step::k(row_of(i), chunk_of(i)); }
  int offset_, stride_;
  const bf16* from_;
  unsigned present_ = 0;
};

// The copies of both operands; A and B are the types of their steps in the Tile.
template <class Tile, class A, class B, bool AAlongK, bool BAlongK>
class OperandCopies {
 public:
  template <class Result>
  __device__ OperandCopies(const Matmul<bf16, Result>& product, const BlockTile<bf16>& tile)
      : a_(tile.a, tile.stride_a, tile.rows_left), b_(tile.b, product.b.row_stride, tile.columns_left) {}
  // Starts the copies of the next step, of which `left` of k are before the end.
  template <class Result>
  __device__ void start(const MatmulPlan<bf16, Result>& plan, Tile& shared, int stage, int left) {
    if (left > 0) {
      if (AAlongK && plan.product.a_parts[0].columns) enter_part(plan, left);
      a_.start(shared.a[stage], left);
      b_.start(shared.b[stage], left);
    }
    cp_async_commit();  // also an empty group, because waits count groups
  }

 private:
  // Steps of k may begin a part of A. The tile is computed again, so that no register holds it.
  template <class Result>
  __device__ void enter_part(const MatmulPlan<bf16, Result>& plan, int left) {
    const auto tile = BlockTile<bf16>::template of<Tile::rows, Tile::columns, uint32_t>(plan, blockIdx.x);
    const auto part = PartOfA<bf16>::at(plan.product, tile.k1 - left);
    if (part.begin == tile.k1 - left) a_.continue_with(part.data + tile.row * part.stride, part.stride);
  }
  StepCopies<A, AAlongK, Tile::threads> a_;
  StepCopies<B, BAlongK, Tile::threads> b_;
};

// Returns true if the block of this tile also sums the rows of A.
template <class Result>
__device__ bool sums_rows_of(const Matmul<bf16, Result>& product, const BlockTile<bf16>& tile) {
  return product.row_sums && tile.output == 0 && tile.column == 0;
}

// A lane's ldmatrix addresses, for 16 of mn and 16 of k. A warp's sixteens are `Apart` apart in mn.
template <int MN, bool AlongK, bool IsA, int Apart>
class Fragments {
  using Step = TensorCoreStep<MN, AlongK>;

 public:
  __device__ Fragments(int first_mn, int lane) {
    // Order of the four matrices: A down its rows, then along k; B along k, then across columns.
    const int eight_of_mn = IsA ? lane / 8 % 2 : lane / 16, eight_of_k = IsA ? lane / 16 : lane / 8 % 2;
    if constexpr (AlongK)
      offset_ = Step::offset(first_mn + eight_of_mn * 8 + lane % 8, eight_of_k);
    else
      offset_ = Step::offset(eight_of_k * 8 + lane % 8, first_mn / Step::chunk + eight_of_mn);
  }
  // 16 elements along a row are two chunks. XOR adds their offset, because it also permutes chunks.
  __device__ void load(uint32_t (&x)[4], const unsigned char* step, int sixteen_of_mn, int sixteen_of_k) const {
    constexpr int eight = 8 * Step::chunk_bytes;
    const int along = (AlongK ? sixteen_of_k * 16 : sixteen_of_mn * Apart) / Step::chunk * Step::chunk_bytes;
    const int rows = AlongK ? sixteen_of_mn * Apart : sixteen_of_k * 16;
    load_matrices<!AlongK>(x, step + (offset_ ^ along % eight) + along / eight * eight + rows * Step::row_bytes);
  }

 private:
  int offset_;
};

// Sums of A's rows: products of A with ones, which the tiles of C's first columns compute too.
// Warps across such a tile divide their 64 rows among them, 16 at a time.
template <class Tile>
class TileRowSums {
  static constexpr int groups = Tile::warp_rows / 16 / Tile::warps_across;

 public:
  // `first`: the warp's row of the tile
  __device__ TileRowSums(int first, int warp_across) : first_(first), group_(warp_across * groups) {}

  template <class Fragments>
  __device__ void add(const Fragments& of_a, const unsigned char* step) {
    constexpr uint32_t one = 0x3f80, ones[2] = {one << 16 | one, one << 16 | one};  // in bf16
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

template <class Tile, class Result, int N, class Epilogue>
__device__ void store_by_warps(const MatmulPlan<bf16, Result>& plan, const BlockTile<bf16>& tile,
                               const float (&sum)[4][N][4], const Epilogue& epilogue) {
  const auto origin = WarpOrigin<Tile>();  // computed again, so that no register holds it during the loop
  store_sums<Tile::apart, 16, 0, N, Tile::columns != 192>(plan, tile, sum, origin.row, origin.column, origin.lane,
                                                          epilogue);
}

// The destination of a tile's sums is C, or, if a block computes several tiles and parts of tiles
// along k (tensor_core_runs.cuh), a slot: the sums [register][thread], then those of A's rows.
struct NoSlot {
  static constexpr bool is_last = true;
};
struct Slot {
  static constexpr int threads = 256, sums = 128 * threads, floats = sums + 128;
  float* data;   // null: C
  bool is_last;  // of the block
};
template <int M, int N, class F>
__device__ void each_in_slot(float* slot, float (&sum)[M][N][4], const F& f) {
  static_assert(M * N * 4 * Slot::threads == Slot::sums);
#pragma unroll
  for (int i = 0; i < M; ++i)
#pragma unroll
    for (int j = 0; j < N; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) f(sum[i][j][e], slot[((i * N + j) * 4 + e) * Slot::threads + threadIdx.x]);
}
struct StoreInSlot {
  __device__ void operator()(float sum, float& stored) const { stored = sum; }
};

template <int Columns, bool AAlongK, bool BAlongK, class Result, class Epilogue, class To = NoSlot>
__device__ void multiply_by_warps(const MatmulPlan<bf16, Result>& plan, const BlockTile<bf16>& tile,
                                  const Epilogue& epilogue, const To& to = {}) {
  using Tile = TensorCoreTile<Columns, AAlongK, BAlongK>;
  Tile& shared = shared_memory<Tile>();
  const Matmul<bf16, Result>& p = plan.product;
  OperandCopies<Tile, typename Tile::A, typename Tile::B, AAlongK, BAlongK> copies(p, tile);
  const int depth = static_cast<int>(tile.k1 - tile.k0);

  const auto warp = WarpOrigin<Tile>();
  constexpr int sixteens = Tile::warp_columns / 16;  // groups of 16 columns of a warp
  const Fragments<Tile::rows, AAlongK, true, 16> of_a(warp.row, warp.lane);
  const Fragments<Tile::columns, BAlongK, false, Tile::apart> of_b(warp.column, warp.lane);
  constexpr bool may_sum_rows = !AAlongK && !BAlongK && std::is_same_v<Result, float>;
  const bool sums_rows = may_sum_rows && sums_rows_of(p, tile);
  TileRowSums<Tile> row_sums(warp.row, warp.column / 16);
  wait_for_earlier();
  for (int s = 0; s < Tile::stages - 1; ++s) copies.start(plan, shared, s, depth - s * tensor_core_depth);
  float sum[4][2 * sixteens][4] = {};
  int stage = 0, next = Tile::stages - 1;
#pragma unroll 1
  for (int left = depth; left > 0; left -= tensor_core_depth) {
    cp_async_wait<Tile::stages - 2>();
    __syncthreads();  // this step has arrived from all threads, and none reads the buffer that is filled next
    copies.start(plan, shared, next, left - (Tile::stages - 1) * tensor_core_depth);
    next = stage;
#pragma unroll
    for (int half = 0; half < tensor_core_depth / 16; ++half) {
      uint32_t a[4][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) of_a.load(a[i], shared.a[stage], i, half);
#pragma unroll
      for (int j = 0; j < sixteens; ++j) {
        uint32_t b[4];
        of_b.load(b, shared.b[stage], j, half);
#pragma unroll
        for (int n = 0; n < 8; ++n) mma_m16n8k16(sum[n / 2][2 * j + n % 2], a[n / 2], &b[n % 2 * 2]);
      }
    }
    if constexpr (may_sum_rows)
      if (sums_rows) row_sums.add(of_a, shared.a[stage]);
    stage = stage == Tile::stages - 1 ? 0 : stage + 1;
  }
  if (to.is_last) allow_next();
  const auto origin = WarpOrigin<Tile>();  // computed again, so that no register holds it during the loop
  if constexpr (std::is_same_v<To, Slot>)
    if (to.data) {
      each_in_slot(to.data, sum, StoreInSlot{});
      if (sums_rows) row_sums.store(to.data + Slot::sums, Tile::rows, false, origin.lane);
      return;
    }
  if constexpr (may_sum_rows)
    if (sums_rows)
      row_sums.store(p.row_sums + tile.split * p.m + tile.row, tile.rows_left, p.accumulate_row_sums, origin.lane);
  store_by_warps<Tile>(plan, tile, sum, epilogue);
}

}  // namespace orrery::cuda
