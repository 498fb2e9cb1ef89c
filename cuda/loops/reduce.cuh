// Sums over one axis on a GPU.
//
// A tile is `width` neighbouring outputs times one chunk of the n rows; loop_threads / width threads of its block share
// an output.  Which threads those are depends on what lies side by side in memory: outputs, as in sums of columns, or
// the terms of one output, if inner = 1.  The sums of chunks are the rows of a second, smaller sum in the same launch.
#pragma once

#include "cuda/loops/blocks.cuh"
#include "engine/base/dtype.h"

namespace orrery::cuda {

inline constexpr int64_t most_cut_tiles = 512;  // side by side, for their sums to be cut into chunks

struct Tiling {
  int64_t outer, n, inner;
  int width;               // outputs of a tile, a power of two
  int64_t chunks, length;  // of the n rows; rows of a chunk

  HOST_DEVICE int64_t outputs() const { return outer * inner; }
  HOST_DEVICE int64_t tiles_of_chunk() const { return (outputs() + width - 1) / width; }

  // Neighbouring threads read neighbouring elements up to a warp's 32; beyond that, the longer the sum, the more
  // threads share it.  It is cut into chunks only if the outputs alone would leave most of the card idle.
  static Tiling of(int64_t outer, int64_t n, int64_t inner) {
    constexpr int64_t least_rows_of_thread = 4, enough_blocks = 2 * most_cut_tiles;
    int narrowest = 1;
    while (narrowest < 32 && narrowest < inner) narrowest *= 2;
    int width = loop_threads;
    while (width > narrowest && loop_threads / width * least_rows_of_thread * 2 <= n) width /= 2;
    Tiling tiling{outer, n, inner, width, 1, n};
    const int64_t least_length = loop_threads / width * least_rows_of_thread * 2;
    const int64_t wanted = std::min(enough_blocks / tiling.tiles_of_chunk(), n / least_length);
    if (wanted < 2) return tiling;
    tiling.length = pieces_of(n, wanted);
    tiling.chunks = pieces_of(n, tiling.length);
    return tiling;
  }
};

// What one thread of a tile does: it adds the terms start, start + step, ... of its column, then with the lanes that
// differ from it in the bits from `flip` to below `end_of_flips`; one of them speaks for part `part` of `parts`.
struct Seat {
  int column, start, step, flip, end_of_flips, part, parts;
  bool speaks;

  __device__ Seat(const Tiling& tiling, int thread) {
    const int width = tiling.width;
    step = loop_threads / width;
    if (tiling.inner == 1) {  // neighbours add neighbouring terms
      column = thread / step, start = thread % step;
      flip = 1, end_of_flips = step < 32 ? step : 32;
      part = start / 32, parts = (step + 31) / 32;
      speaks = start % 32 == 0;
    } else {  // neighbours add to neighbouring outputs
      column = thread % width, start = thread / width;
      flip = width, end_of_flips = 32;
      part = width < 32 ? thread / 32 : start, parts = width < 32 ? loop_warps : step;
      speaks = width >= 32 || thread % 32 < width;
    }
  }
};

template <class A, int K>
struct Sums {
  A value[K] = {};
};
template <class A, int K>
struct PartialSums {
  A value[K][loop_threads];
  bool last;  // whether one of this block's threads was the last to write a chunk's sum of the tile
};

// Of the terms of rows [first, last) of each output of a tile: the first `width` threads get theirs.
template <class A, int K, class F>
__device__ Sums<A, K> sum_of_tile(const Tiling& tiling, const Seat& seat, int64_t columns, int64_t first, int64_t last,
                                  const F& f, PartialSums<A, K>& partial) {
  using Term = detail::Terms<decltype(f(int64_t{0}, int64_t{0}))>;
  const int width = tiling.width;
  const int64_t output = columns * width + seat.column, o = output / tiling.inner, i = output % tiling.inner;
  Sums<A, K> sum;
  if (output < tiling.outputs())
#pragma unroll 4
    for (int64_t j = first + seat.start; j < last; j += seat.step) {
      const int64_t row = o * tiling.n + j;
      const auto value = f(row * tiling.inner + i, row);
      for (int k = 0; k < K; ++k) sum.value[k] += Term::get(value, k);
    }
  // Threads that share a warp and an output first, then the warps.
  for (int k = 0; k < K; ++k) {
    for (int flip = seat.flip; flip < seat.end_of_flips; flip *= 2)
      sum.value[k] += __shfl_xor_sync(~0u, sum.value[k], flip);
    if (seat.speaks) partial.value[k][seat.part * width + seat.column] = sum.value[k];
  }
  __syncthreads();
  Sums<A, K> total;
  if (threadIdx.x < static_cast<unsigned>(width))
    for (int k = 0; k < K; ++k)
      for (int p = 0; p < seat.parts; ++p)
        total.value[k] += partial.value[k][p * width + static_cast<int>(threadIdx.x)];
  return total;
}

// The sums of chunks: K arrays of `count` numbers, written as Outputs, read back as a formula's value.  Other blocks
// wrote them: volatile reads do not take them from a cache of this one.
template <class A, int K>
struct ReadPartials {
  const volatile A* first;
  int64_t count;
  __device__ Values<A, K> operator()(int64_t i, int64_t) const {
    Values<A, K> value;
    for (int k = 0; k < K; ++k) value[k] = first[k * count + i];
    return value;
  }
};

// How many threads have written a chunk's sum of each tile; 0 between launches, which follow one another on one stream.
__device__ inline unsigned* arrived() {
  static unsigned of_tile[most_cut_tiles];
  return of_tile;
}

// `sums`: where those of the chunks go, K arrays, if there are several.  The block that writes the last of a tile adds
// them, in their order: which block that is decides nothing.
template <class F, class Out, class A>
__global__ void __launch_bounds__(loop_threads) reduce_kernel(const Tiling tiling, const F f, const Out out, A* sums) {
  constexpr int K = detail::Terms<decltype(f(int64_t{0}, int64_t{0}))>::count;
  PartialSums<A, K>& partial = shared_memory<PartialSums<A, K>>();
  if (threadIdx.x == 0) partial.last = false;
  const Seat seat(tiling, static_cast<int>(threadIdx.x));
  const int64_t chunks = tiling.chunks, count = tiling.outputs() * chunks, tiles = tiling.tiles_of_chunk() * chunks;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t chunk = tile % chunks, columns = tile / chunks, first = chunk * tiling.length;
    const int64_t last = first + tiling.length < tiling.n ? first + tiling.length : tiling.n;
    const int64_t mine = columns * tiling.width + threadIdx.x, o = mine / tiling.inner, i = mine % tiling.inner;
    const bool has_output = threadIdx.x < static_cast<unsigned>(tiling.width) && mine < tiling.outputs();
    Sums<A, K> total = sum_of_tile<A, K>(tiling, seat, columns, first, last, f, partial);
    if (chunks > 1) {
      if (has_output)
        for (int k = 0; k < K; ++k) sums[k * count + (o * chunks + chunk) * tiling.inner + i] = total.value[k];
      __threadfence();
      const unsigned others = static_cast<unsigned>(chunks) * static_cast<unsigned>(tiling.width) - 1;
      if (threadIdx.x < static_cast<unsigned>(tiling.width) && atomicInc(arrived() + columns, others) == others)
        partial.last = true;
      __syncthreads();
      if (!partial.last) continue;
      __threadfence();
      const Tiling of_chunks = {tiling.outer, chunks, tiling.inner, tiling.width, 1, chunks};
      total = sum_of_tile<A, K>(of_chunks, seat, columns, 0, chunks, ReadPartials<A, K>{sums, count}, partial);
      if (threadIdx.x == 0) partial.last = false;
    }
    if (has_output)
      for (int k = 0; k < K; ++k) detail::store(detail::destination(out, k), mine, total.value[k]);
    __syncthreads();  // the next tile writes there
  }
}

template <class F, class Out>
void reduce(int64_t outer, int64_t n, int64_t inner, const F& f, Out out) {
  using Term = detail::Terms<decltype(f(int64_t{0}, int64_t{0}))>;
  using A = typename Term::type;
  if (outer == 0 || inner == 0) return;
  const Tiling tiling = Tiling::of(outer, n, inner);
  const int64_t sums = tiling.chunks > 1 ? Term::count * tiling.outputs() * tiling.chunks : 0;
  const Workspace workspace(sums * static_cast<int64_t>(sizeof(A)));
  const Launch all("reduce", blocks_for(tiling.tiles_of_chunk() * tiling.chunks), loop_threads,
                   sizeof(PartialSums<A, Term::count>));
#if defined(__CUDACC__)
  launch(all, reduce_kernel<F, Out, A>, tiling, f, out, static_cast<A*>(workspace.data()));
#else
  try {
    launch(all, reduce_kernel<F, Out, A>, tiling, f, out, static_cast<A*>(workspace.data()));
  } catch (...) {  // on a card a fault is the end
    std::fill_n(arrived(), most_cut_tiles, 0u);
    throw;
  }
#endif
}

}  // namespace orrery::cuda
