// Tiles in shared memory, and copies of operands to them, for the tensor core attention kernels
// (tensor_core.cuh). Visibility: tensor_core_walk.cuh; products: tensor_core_product.cuh.
#pragma once

#include <cstdint>
#include <limits>

#include "cuda/attention/formula.cuh"
#include "cuda/loops/lanes.cuh"
#include "cuda/matmul/tensor_core.cuh"

namespace orrery::cuda {

inline constexpr int tensor_core_attention_threads = 128;
inline constexpr int64_t tensor_core_attention_size = 128;  // largest head size

template <int Count, int Size>
struct alignas(16) TensorCoreRows {
  static constexpr int count = Count, size = Size;
  static constexpr int pitch = Size + 8;  // rows that ldmatrix reads at once are in different banks
  bf16 element[Count][pitch];

  __device__ const void* chunk(int row, int n) const { return &element[row][8 * n]; }  // 16 bytes
};
template <int Part, int Count, int Size>
__device__ const TensorCoreRows<Part, Size>& rows_from(const TensorCoreRows<Count, Size>& rows, int first) {
  return reinterpret_cast<const TensorCoreRows<Part, Size>&>(rows.element[first]);
}
// A lane's elements of 16 rows of a product, and of 16 rows as operand of the next product.
template <int Columns>
using LaneScores = float[Columns / 8][4];
template <int Columns>
using LaneWeights = uint32_t[Columns / 16][4];

// Forward: the next keys arrive while values are read, and vice versa. So one buffer of each
// suffices, and two blocks fit on a multiprocessor of every GPU.
template <int Size>
struct TensorCoreForwardTile {
  static constexpr int owned_rows = 128, walked_rows = Size <= 64 ? 64 : 32;  // more would not fit in registers
  using Scores = LaneScores<walked_rows>;
  using Weights = LaneWeights<walked_rows>;
  using Result = LaneScores<Size>;
  TensorCoreRows<owned_rows, Size> own;
  TensorCoreRows<walked_rows, Size> keys, values;
};
// Values of a query: L log2(e), and -c.
struct alignas(8) TensorCoreRowTerms {
  float log_sum, minus_centre;
};
// Those of a head's queries are followed by zeros, up to a multiple of 64 rows.
template <class P>
HOST_DEVICE int rows_of_terms(const P& p) {
  return (p.queries + 63) / 64 * 64;
}
template <class P>
__device__ int64_t row_of_terms(const P& p, const QueryTile& q) {  // of query 0
  return int64_t{q.sequence * p.query_heads + q.head} * rows_of_terms(p);
}
// Values of two adjacent queries. -c is stored twice, as in the elements of a product's start.
struct alignas(16) TensorCorePairTerms {
  float minus_centre[4], log_sum[4];  // log_sum: only the first two are used
};
// Backward, rows of a block. Heads above 64 leave no registers for more than 16 rows per warp.
template <int Size>
inline constexpr int backward_rows = Size <= 64 ? 128 : 64;
template <int Size>
struct TensorCoreQueriesTile {  // values are used before keys
  static constexpr int owned_rows = backward_rows<Size>, walked_rows = 64;
  using Scores = LaneScores<walked_rows>;
  using Weights = LaneWeights<walked_rows>;
  using Result = LaneScores<Size>;
  TensorCoreRows<owned_rows, Size> own[2];
  TensorCoreRows<walked_rows, Size> values, keys;
};
template <int Size>
struct TensorCoreKeysTile {  // queries are used before and after gradients, so two buffers alternate
  // For heads up to 64 a warp owns twice the rows, so it walks fewer rows at a time.
  static constexpr int owned_rows = backward_rows<Size>, walked_rows = Size <= 64 ? 16 : 32;
  using Scores = LaneScores<walked_rows>;
  using Weights = LaneWeights<walked_rows>;
  using Result = LaneScores<Size>;
  TensorCoreRows<owned_rows, Size> own[2];
  TensorCoreRows<walked_rows, Size> walked[2][2];
  TensorCorePairTerms terms[2][walked_rows / 2];  // terms of walked queries
};
static_assert(sizeof(TensorCoreForwardTile<128>) <= 99 * 1024 && sizeof(TensorCoreQueriesTile<128>) <= 99 * 1024 &&
              sizeof(TensorCoreKeysTile<128>) <= 99 * 1024);

__device__ inline int lane_of_warp() { return static_cast<int>(threadIdx.x) % 32; }
// Equal in all lanes; the shuffle lets the compiler use this.
__device__ inline int warp_of_block() { return __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0); }

// ---- operands

// Rows of operands that a block copies tile by tile, with a thread's addresses that tiles share.
template <int Size, int Operands>
class RowSource {
 public:
  __device__ RowSource(const ReadRows<float> (&rows)[Operands], const int (&sizes)[Operands])
      : to_(in_register(own_row() * TensorCoreRows<1, Size>::pitch + column())) {
    int flags = 0;
#pragma unroll
    for (int o = 0; o < Operands; ++o) {
      const bf16* own = static_cast<const bf16*>(rows[o].data) + rows[o].first + own_row() * rows[o].stride + column();
      own_[o] = in_register(reinterpret_cast<const char*>(own));
      stride_[o] = 2 * rows[o].stride, size_[o] = sizes[o];
      const bool vectors =
          reinterpret_cast<uintptr_t>(own) % 16 == 0 && rows[o].stride % chunk == 0 && sizes[o] % chunk == 0;
      flags |= (vectors ? 1 << o : 0) | (vectors && sizes[o] == Size ? unpadded << o : 0);
    }
    flags_ = in_register(flags);
  }

  // Starts copies of rows [first, first + Count) of operand `o`; from `end` and its size on: zeros.
  template <int Count>
  __device__ void fetch(int o, TensorCoreRows<Count, Size>& tile, int first, int end) const {
    if (flags_ & unpadded << o && first + Count <= end)  // most tiles: no test per chunk
      copy(o, tile, first);
    else
      copy_existing(o, tile, first, end);
  }
  template <int Count>
  __device__ void fetch(TensorCoreRows<Count, Size> (&tiles)[Operands], int first, int end) const {
    constexpr int all = (unpadded << Operands) - unpadded;
    const bool existing = (flags_ & all) == all && first + Count <= end;
    if (existing) {
#pragma unroll
      for (int o = 0; o < Operands; ++o) copy(o, tiles[o], first);
    } else {
#pragma unroll
      for (int o = 0; o < Operands; ++o) copy_existing(o, tiles[o], first, end);
    }
  }
  // Advances to the rows of the next head.
  __device__ void next_head() {
#pragma unroll
    for (int o = 0; o < Operands; ++o) own_[o] = in_register(own_[o] + 2 * size_[o]);
  }

 private:
  static constexpr int chunk = 8, chunks = Size / chunk;                // a chunk is 16 bytes
  static constexpr int apart = tensor_core_attention_threads / chunks;  // rows between two chunks of a thread
  static constexpr int step = apart * TensorCoreRows<1, Size>::pitch;   // elements of the tile between them
  static constexpr int unpadded = 1 << Operands;

  __device__ static int own_row() { return static_cast<int>(threadIdx.x) / chunks; }
  __device__ static int column() { return static_cast<int>(threadIdx.x) % chunks * chunk; }
  __device__ const char* from(int o, int first) const { return own_[o] + static_cast<unsigned>(first) * stride_[o]; }

  template <int Count>
  __device__ void copy(int o, TensorCoreRows<Count, Size>& tile, int first) const {
    const char* here = from(o, first);
#pragma unroll
    for (int n = 0; n < Count / apart; ++n, here += apart * stride_[o])
      cp_async<16>(tile.element[0] + to_ + n * step, here);
  }
  template <int Count>
  __device__ void copy_existing(int o, TensorCoreRows<Count, Size>& tile, int first, int end) const {
    const char* here = from(o, first);
#pragma unroll 1
    for (int n = 0; n < Count / apart; ++n, here += apart * stride_[o]) {
      const int columns = first + own_row() + n * apart < end ? size_[o] - column() : 0;
      bf16* const to = tile.element[0] + to_ + n * step;
      if (flags_ & 1 << o) {
        cp_async<16>(to, columns > 0 ? here : own_[o], columns > 0 ? 16 : 0);
      } else {
#pragma unroll 1
        for (int e = 0; e < chunk; ++e) to[e] = e < columns ? reinterpret_cast<const bf16*>(here)[e] : bf16(0.f);
      }
    }
  }

  const char* own_[Operands];  // the thread's first chunk, of a tile that begins at row 0
  int64_t stride_[Operands];   // in bytes
  int size_[Operands];
  int to_;     // offset of the chunk in a tile
  int flags_;  // 1 << o: 16-byte copies of operand o; unpadded << o: and no padding columns
};
// Keys and values, or queries and output gradients, of one head
template <int Size, class P>
__device__ RowSource<Size, 2> source_of_keys(const P& p, int sequence, int kv_head) {
  const int64_t token = int64_t{sequence} * p.keys;
  return {{rows_from(p, p.key, token, int64_t{kv_head} * p.head_size),
           rows_from(p, p.value, token, int64_t{kv_head} * p.value_size)},
          {p.head_size, p.value_size}};
}
template <int Size, class P>
__device__ RowSource<Size, 2> source_of_queries(const P& p, const QueryTile& q) {
  return {{rows_of_queries(p, p.query, q, p.head_size), rows_of_queries(p, p.output_gradient, q, p.value_size)},
          {p.head_size, p.value_size}};
}

// Waits until the copies of all threads of the block have arrived.
__device__ inline void wait_for_copies() {
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
}

// Loops over the tiles of `walk`: fetch(tile, buffer) starts a copy, body(tile, buffer) uses it.
template <class Walk, class Fetch, class Body>
__device__ void walk_along(const Walk& walk, const Fetch& fetch, const Body& body) {
  auto tile = walk.begin();
  int buffer = 0;
  bool some = walk.has(tile);
  if (some) fetch(tile, buffer);
  while (some) {
    wait_for_copies();  // the tile is complete, and no thread reads the other buffer
    const auto following = walk.after(tile);
    some = walk.has(following);
    if (some) fetch(following, 1 - buffer);
    body(tile, buffer);
    tile = following, buffer = 1 - buffer;
  }
  cp_async_commit();
  cp_async_wait<0>();  // copies of own rows must not outlive the block, even without tiles
}
// Like walk_along, with one buffer for each of two operands: fetch_first(tile) starts the copy that
// first(tile) uses, fetch_second(tile) that of second(tile).
template <class Walk, class FetchFirst, class FetchSecond, class First, class Second>
__device__ void walk_in_turns(const Walk& walk, const FetchFirst& fetch_first, const FetchSecond& fetch_second,
                              const First& first, const Second& second) {
  auto tile = walk.begin();
  bool some = walk.has(tile);
  if (some) fetch_first(tile);
  while (some) {
    wait_for_copies();  // the first operand is complete, and no thread reads the second
    fetch_second(tile);
    first(tile);
    const auto following = walk.after(tile);
    some = walk.has(following);
    wait_for_copies();  // the second operand is complete, and no thread reads the first
    if (some) fetch_first(following);
    second(tile);
    tile = following;
  }
  cp_async_commit();
  cp_async_wait<0>();  // copies of own rows must not outlive the block, even without tiles
}

}  // namespace orrery::cuda
