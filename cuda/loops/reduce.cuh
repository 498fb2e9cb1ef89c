// Sums over one axis on a GPU.
//
// A tile is `width` neighbouring outputs times one chunk of the n rows; loop_threads / width threads of its block share
// an output.  Which threads those are depends on what lies side by side in memory: outputs, as in sums of columns, or
// the terms of one output, if inner = 1.  The sums of chunks are the rows of a second, smaller sum.
#pragma once

#include "cuda/loops/blocks.cuh"
#include "engine/base/dtype.h"

namespace orrery::cuda {

struct Tiling {
  int64_t outer, n, inner;
  int width;               // outputs of a tile, a power of two
  int64_t chunks, length;  // of the n rows; rows of a chunk

  HOST_DEVICE int64_t outputs() const { return outer * inner; }
  HOST_DEVICE int64_t tiles_of_chunk() const { return (outputs() + width - 1) / width; }

  // Neighbouring threads read neighbouring elements up to a warp's 32; beyond that, the longer the sum, the more
  // threads share it.  It is cut into chunks only if the outputs alone would leave most of the card idle.
  static Tiling of(int64_t outer, int64_t n, int64_t inner, bool may_cut) {
    constexpr int64_t least_rows_of_thread = 4, enough_blocks = 1024;
    int narrowest = 1;
    while (narrowest < 32 && narrowest < inner) narrowest *= 2;
    int width = loop_threads;
    while (width > narrowest && loop_threads / width * least_rows_of_thread * 2 <= n) width /= 2;
    Tiling tiling{outer, n, inner, width, 1, n};
    if (!may_cut) return tiling;
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
struct PartialSums {
  A value[K][loop_threads];
};

template <class F, class Out>
__global__ void __launch_bounds__(loop_threads) reduce_kernel(const Tiling tiling, const F f, const Out out) {
  using Value = decltype(f(int64_t{0}, int64_t{0}));
  using Term = detail::Terms<Value>;
  using A = typename Term::type;
  PartialSums<A, Term::count>& partial = shared_memory<PartialSums<A, Term::count>>();
  const Seat seat(tiling, static_cast<int>(threadIdx.x));
  const int width = tiling.width;
  const int64_t inner = tiling.inner, tiles = tiling.tiles_of_chunk() * tiling.chunks;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t chunk = tile % tiling.chunks, output = tile / tiling.chunks * width + seat.column;
    const int64_t o = output / inner, i = output % inner, first = chunk * tiling.length;
    const int64_t last = first + tiling.length < tiling.n ? first + tiling.length : tiling.n;
    A sum[Term::count] = {};
    if (output < tiling.outputs())
#pragma unroll 4
      for (int64_t j = first + seat.start; j < last; j += seat.step) {
        const int64_t row = o * tiling.n + j;
        const Value value = f(row * inner + i, row);
        for (int k = 0; k < Term::count; ++k) sum[k] += Term::get(value, k);
      }
    // Threads that share a warp and an output first, then the warps.
    for (int k = 0; k < Term::count; ++k) {
      for (int flip = seat.flip; flip < seat.end_of_flips; flip *= 2) sum[k] += __shfl_xor_sync(~0u, sum[k], flip);
      if (seat.speaks) partial.value[k][seat.part * width + seat.column] = sum[k];
    }
    __syncthreads();
    const int64_t mine = tile / tiling.chunks * width + threadIdx.x, outer = mine / inner;
    if (threadIdx.x < static_cast<unsigned>(width) && mine < tiling.outputs())
      for (int k = 0; k < Term::count; ++k) {
        A total = 0;
        for (int p = 0; p < seat.parts; ++p) total += partial.value[k][p * width + static_cast<int>(threadIdx.x)];
        detail::store(detail::destination(out, k), (outer * tiling.chunks + chunk) * inner + mine % inner, total);
      }
    __syncthreads();  // the next tile writes there
  }
}

template <class F, class Out>
void reduce_tiles(const Tiling& tiling, const F& f, const Out& out) {
  using Term = detail::Terms<decltype(f(int64_t{0}, int64_t{0}))>;
  using Shared = PartialSums<typename Term::type, Term::count>;
  const unsigned blocks = blocks_for(tiling.tiles_of_chunk() * tiling.chunks);
  launch({"reduce", blocks, loop_threads, sizeof(Shared)}, reduce_kernel<F, Out>, tiling, f, out);
}

// The sums of chunks: K arrays of `count` numbers, written as Outputs, read back as a formula's value.
template <class A, int K>
struct ReadPartials {
  const A* first;
  int64_t count;
  __device__ Values<A, K> operator()(int64_t i, int64_t) const {
    Values<A, K> value;
    for (int k = 0; k < K; ++k) value[k] = first[k * count + i];
    return value;
  }
};

template <class F, class Out>
void reduce(int64_t outer, int64_t n, int64_t inner, const F& f, Out out) {
  using Term = detail::Terms<decltype(f(int64_t{0}, int64_t{0}))>;
  using A = typename Term::type;
  constexpr int K = Term::count;
  if (outer == 0 || inner == 0) return;
  const Tiling tiling = Tiling::of(outer, n, inner, true);
  if (tiling.chunks == 1) return reduce_tiles(tiling, f, out);
  const int64_t count = outer * tiling.chunks * inner;
  const Workspace workspace(K * count * static_cast<int64_t>(sizeof(A)));
  A* const sums = static_cast<A*>(workspace.data());
  Outputs<A, K> partial;
  for (int k = 0; k < K; ++k) partial.pointer[k] = sums + k * count;
  reduce_tiles(tiling, f, partial);
  reduce_tiles(Tiling::of(outer, tiling.chunks, inner, false), ReadPartials<A, K>{sums, count}, out);
}

}  // namespace orrery::cuda
