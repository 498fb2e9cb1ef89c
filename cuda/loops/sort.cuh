// A stable radix sort of (key, index) pairs by digits of 8 bits, the lowest first. For each digit:
//   count    each block counts the digits of one tile of pairs
//   scan     computes where pairs of each digit and tile begin: after lower digits, earlier tiles
//   scatter  each block ranks its tile's pairs within each digit and writes them to sorted order
// A warp owns 256 consecutive pairs of a tile and takes 32 at a time. Ballots find lanes with equal
// digits, so a rank is a count of lower lanes plus a counter of the warp. There are no atomics, so
// the result does not depend on the order of threads.
#pragma once

#include <bit>

#include "cuda/loops/blocks.cuh"

namespace orrery::cuda {

inline constexpr int sort_radix = loop_threads;  // values of a digit, one thread each
inline constexpr int sort_bits = std::bit_width(static_cast<unsigned>(sort_radix)) - 1;
inline constexpr int sort_rounds = 8, sort_tile = loop_threads * sort_rounds;

struct SortPass {
  const int32_t *key, *index;  // index null: pair i has index i
  int32_t n, limit;            // keys outside 0 to limit - 1 become `limit` and come last
  int shift;                   // of the key: bits below this pass's digit

  __device__ int32_t key_at(int64_t i) const {
    return static_cast<uint32_t>(key[i]) < static_cast<uint32_t>(limit) ? key[i] : limit;
  }
  __device__ int32_t index_at(int64_t i) const { return index ? index[i] : static_cast<int32_t>(i); }
  __device__ unsigned digit(int32_t k) const { return static_cast<unsigned>(k) >> shift & (sort_radix - 1); }
};

struct SortCounters {
  int32_t per_warp[loop_warps][sort_radix];
};

// The pairs of one thread: lane l has the pairs l, l + 32, ... of its warp.
struct SortPairs {
  int64_t first;  // index of the warp's first pair
  int32_t rank[sort_rounds];

  __device__ static unsigned warp() { return threadIdx.x / 32; }
  __device__ static unsigned lane() { return threadIdx.x % 32; }
  __device__ int64_t at(int round) const { return first + round * 32 + lane(); }

  // Ranks each pair among the warp's pairs of equal digit; counts these pairs in `counters`.
  __device__ SortPairs(const SortPass& pass, SortCounters& counters)
      : first(int64_t{blockIdx.x} * sort_tile + warp() * 32 * sort_rounds) {
    int32_t* const count = counters.per_warp[warp()];
    unsigned same[sort_rounds], digit[sort_rounds];
#pragma unroll
    for (int round = 0; round < sort_rounds; ++round) {
      const bool here = at(round) < pass.n;
      digit[round] = here ? pass.digit(pass.key_at(at(round))) : 0;
      same[round] = __ballot_sync(~0u, here);
      for (int bit = 0; bit < sort_bits; ++bit) {
        const bool set = digit[round] >> bit & 1u;
        const unsigned all = __ballot_sync(~0u, set);
        same[round] &= set ? all : ~all;
      }
    }
    for (unsigned d = lane(); d < sort_radix; d += 32) count[d] = 0;
    __syncwarp();
#pragma unroll
    for (int round = 0; round < sort_rounds; ++round) {
      const unsigned lower = same[round] & ((1u << lane()) - 1);
      const int32_t before = count[digit[round]];
      rank[round] = before + std::popcount(lower);
      __syncwarp();
      if (lower == 0 && at(round) < pass.n) count[digit[round]] = before + std::popcount(same[round]);
      __syncwarp();
    }
  }
};

// Writes counts[tile][digit].
__global__ void __launch_bounds__(loop_threads) sort_count_kernel(const SortPass pass, int32_t* counts) {
  SortCounters& counters = shared_memory<SortCounters>();
  wait_for_earlier();
  allow_next();
  const SortPairs pairs(pass, counters);
  __syncthreads();
  int32_t count = 0;
  for (int w = 0; w < loop_warps; ++w) count += counters.per_warp[w][threadIdx.x];
  counts[int64_t{blockIdx.x} * sort_radix + threadIdx.x] = count;
}

struct SortTotals {
  int32_t per_digit[sort_radix];
};
// Replaces counts[tile][digit] by the sorted index of the first such pair. One block.
__global__ void __launch_bounds__(loop_threads) sort_scan_kernel(int64_t tiles, int32_t* counts) {
  SortTotals& totals = shared_memory<SortTotals>();
  const unsigned digit = threadIdx.x;
  wait_for_earlier();
  allow_next();
  int32_t total = 0;
  for (int64_t t = 0; t < tiles; ++t) total += counts[t * sort_radix + digit];
  totals.per_digit[digit] = total;
  __syncthreads();
  int32_t start = 0;
  for (unsigned d = 0; d < digit; ++d) start += totals.per_digit[d];
  for (int64_t t = 0; t < tiles; ++t) {
    const int32_t count = counts[t * sort_radix + digit];
    counts[t * sort_radix + digit] = start;
    start += count;
  }
}

__global__ void __launch_bounds__(loop_threads)
    sort_scatter_kernel(const SortPass pass, const int32_t* starts, int32_t* key, int32_t* index) {
  SortCounters& counters = shared_memory<SortCounters>();
  wait_for_earlier();
  allow_next();
  const SortPairs pairs(pass, counters);
  __syncthreads();
  int32_t start = starts[int64_t{blockIdx.x} * sort_radix + threadIdx.x];
  for (int w = 0; w < loop_warps; ++w) {
    const int32_t count = counters.per_warp[w][threadIdx.x];
    counters.per_warp[w][threadIdx.x] = start;
    start += count;
  }
  __syncthreads();
  for (int round = 0; round < sort_rounds; ++round) {
    const int64_t i = pairs.at(round);
    if (i >= pass.n) break;
    const int32_t k = pass.key_at(i), to = counters.per_warp[SortPairs::warp()][pass.digit(k)] + pairs.rank[round];
    key[to] = k;
    index[to] = pass.index_at(i);
  }
}

}  // namespace orrery::cuda
