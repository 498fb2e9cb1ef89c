// How a GPU walks memory: map, rows and reduce with the meaning that engine/loops.h gives them.  That header includes
// this one, below its Broadcast, Outputs, load, store, Terms and destination.
//
// Every split depends on the sizes alone and nothing is added atomically, so the same call gives the same bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cuda/launch.cuh"
#include "engine/dtype.h"

namespace orrery::cuda {

inline constexpr int loop_threads = 256;  // of a block, in every kernel of this file
inline constexpr int loop_warps = loop_threads / 32;
inline constexpr int64_t most_blocks = 2048;  // more than any card runs at once; beyond it blocks take turns

// Blocks for so many pieces of work, one piece per block and turn.
inline unsigned blocks_for(int64_t pieces) { return static_cast<unsigned>(std::min(pieces, most_blocks)); }
inline int64_t pieces_of(int64_t n, int64_t size) { return n / size + (n % size != 0); }

// ---- map

template <class F, class Out, class... T>
__global__ void __launch_bounds__(loop_threads) map_kernel(int64_t n, const F f, const Out out, const T*... in) {
  const int64_t step = int64_t{gridDim.x} * loop_threads;
  for (int64_t i = int64_t{blockIdx.x} * loop_threads + threadIdx.x; i < n; i += step)
    detail::store(out, i, f(detail::load(in, i)...));
}

template <class F, class Out, class... T>
void map(int64_t n, const F& f, Out out, const T*... in) {
  if (n == 0) return;
  launch({"map", blocks_for(pieces_of(n, loop_threads)), loop_threads}, map_kernel<F, Out, T...>, n, f, out, in...);
}

// Index: uint32_t where it suffices, because a division of 64-bit numbers costs several times one of 32.
template <class Index, class Shape, class F, class Out, class... T, size_t... K>
__device__ void map_element(std::index_sequence<K...>, const Shape& shape, Index i, const F& f, const Out& out,
                            const T*... in) {
  int64_t at[sizeof...(T)] = {};
  Index rest = i;
  for (int a = shape.rank - 1; a >= 0; --a) {
    const Index size = static_cast<Index>(shape.size[a]), place = a > 0 ? rest % size : rest;
    if (a > 0) rest /= size;
    ((at[K] += static_cast<int64_t>(place) * shape.stride[K][a]), ...);
  }
  detail::store(out, static_cast<int64_t>(i), f(detail::load(in, at[K])...));
}

template <class Index, class Shape, class F, class Out, class... T>
__global__ void __launch_bounds__(loop_threads)
    broadcast_kernel(int64_t n, const __grid_constant__ Shape shape, const F f, const Out out, const T*... in) {
  const int64_t step = int64_t{gridDim.x} * loop_threads;
  for (int64_t i = int64_t{blockIdx.x} * loop_threads + threadIdx.x; i < n; i += step)
    map_element(std::index_sequence_for<T...>(), shape, static_cast<Index>(i), f, out, in...);
}

template <class F, class Out, class... T>
void map(const Broadcast<sizeof...(T)>& shape, const F& f, Out out, const T*... in) {
  using Shape = Broadcast<sizeof...(T)>;
  const int64_t n = shape.count();
  if (n == 0) return;
  const auto kernel = n <= int64_t{UINT32_MAX} ? broadcast_kernel<uint32_t, Shape, F, Out, T...>
                                               : broadcast_kernel<uint64_t, Shape, F, Out, T...>;
  launch({"map", blocks_for(pieces_of(n, loop_threads)), loop_threads}, kernel, n, shape, f, out, in...);
}

// ---- rows
//
// A row of at most `longest_of_warp` elements is walked by a warp, a longer one by a block.  sum and max give every
// thread the result.  A walk, by each or once, stands between barriers: what the body read before is no longer needed,
// what the walk wrote is there for all, as on a CPU.

inline constexpr int longest_of_warp = 1024;

struct Plus {
  template <class A>
  __device__ A operator()(A a, A b) const {
    return a + b;
  }
};
struct Larger {  // a unless b is larger, so that only a NaN in the first place stays
  template <class A>
  __device__ A operator()(A a, A b) const {
    return b > a ? b : a;
  }
};

// What one of `Walkers` threads finds at its own places of [0, n).
template <unsigned Walkers, class A, class F, class Combine>
__device__ A combine_own(unsigned walker, int n, const F& f, A start, Combine combine) {
  A value = start;
  for (unsigned i = walker; i < static_cast<unsigned>(n); i += Walkers)
    value = combine(value, static_cast<A>(f(static_cast<int>(i))));
  return value;
}
template <unsigned Walkers, class F>
__device__ void walk_own(unsigned walker, int n, const F& f) {
  for (unsigned i = walker; i < static_cast<unsigned>(n); i += Walkers) f(static_cast<int>(i));
}

// The lower lane's value always comes first, so every lane computes the same bits.
template <class A, class Combine>
__device__ A across_lanes(A value, Combine combine) {
  for (unsigned flip = 16; flip > 0; flip /= 2) {
    const A other = __shfl_xor_sync(~0u, value, static_cast<int>(flip));
    value = threadIdx.x & flip ? combine(other, value) : combine(value, other);
  }
  return value;
}

template <class A>
struct OfWarps {
  A value[loop_warps];
};
template <class A, class Combine>
__device__ A across_warps(A value, Combine combine) {
  OfWarps<A>& of_warps = shared_memory<OfWarps<A>>();
  value = across_lanes(value, combine);
  if (threadIdx.x % 32 == 0) of_warps.value[threadIdx.x / 32] = value;
  __syncthreads();
  value = of_warps.value[0];
  for (int w = 1; w < loop_warps; ++w) value = combine(value, of_warps.value[w]);
  __syncthreads();  // the next fold writes there
  return value;
}

struct WarpRow {
  int n;

  template <class F>
  __device__ auto sum(const F& f) const {
    return across_lanes(combine_own<32>(threadIdx.x % 32, n, f, decltype(+f(0))(0), Plus{}), Plus{});
  }
  template <class F>
  __device__ auto max(const F& f) const {
    return across_lanes(combine_own<32>(threadIdx.x % 32, n, f, +f(0), Larger{}), Larger{});
  }
  template <class F>
  __device__ void each(const F& f) const {
    walk(n, f);
  }
  template <class F>
  __device__ void once(const F& f) const {
    walk(1, [&](int) { f(); });
  }

 private:
  template <class F>
  __device__ static void walk(int count, const F& f) {
    __syncwarp();
    walk_own<32>(threadIdx.x % 32, count, f);
    __syncwarp();
  }
};

struct BlockRow {
  int n;

  template <class F>
  __device__ auto sum(const F& f) const {
    return across_warps(combine_own<loop_threads>(threadIdx.x, n, f, decltype(+f(0))(0), Plus{}), Plus{});
  }
  template <class F>
  __device__ auto max(const F& f) const {
    return across_warps(combine_own<loop_threads>(threadIdx.x, n, f, +f(0), Larger{}), Larger{});
  }
  template <class F>
  __device__ void each(const F& f) const {
    walk(n, f);
  }
  template <class F>
  __device__ void once(const F& f) const {
    walk(1, [&](int) { f(); });
  }

 private:
  template <class F>
  __device__ static void walk(int count, const F& f) {
    __syncthreads();
    walk_own<loop_threads>(threadIdx.x, count, f);
    __syncthreads();
  }
};

template <class Body>
__global__ void __launch_bounds__(loop_threads) warp_rows_kernel(int64_t count, int n, const Body body) {
  const int64_t step = int64_t{gridDim.x} * loop_warps;
  for (int64_t r = int64_t{blockIdx.x} * loop_warps + threadIdx.x / 32; r < count; r += step) body(WarpRow{n}, r);
}
template <class Body>
__global__ void __launch_bounds__(loop_threads) block_rows_kernel(int64_t count, int n, const Body body) {
  for (int64_t r = blockIdx.x; r < count; r += gridDim.x) body(BlockRow{n}, r);
}

template <class Body>
void rows(int64_t count, int n, const Body& body) {
  if (count == 0) return;
  if (n <= longest_of_warp)
    launch({"rows", blocks_for(pieces_of(count, loop_warps)), loop_threads}, warp_rows_kernel<Body>, count, n, body);
  else  // room for one value of any type per warp
    launch({"rows", blocks_for(count), loop_threads, sizeof(OfWarps<double>)}, block_rows_kernel<Body>, count, n, body);
}

// ---- reduce
//
// A tile is `width` neighbouring outputs times one chunk of the n rows; loop_threads / width threads of its block share
// an output.  The sums of chunks are the rows of a second, smaller sum.
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
  const int width = tiling.width, thread = static_cast<int>(threadIdx.x), column = thread % width;
  const int64_t inner = tiling.inner, tiles = tiling.tiles_of_chunk() * tiling.chunks;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t chunk = tile % tiling.chunks, output = tile / tiling.chunks * width + column;
    const int64_t o = output / inner, i = output % inner, first = chunk * tiling.length;
    const int64_t last = first + tiling.length < tiling.n ? first + tiling.length : tiling.n;
    A sum[Term::count] = {};
    if (output < tiling.outputs())
      for (int64_t j = first + thread / width; j < last; j += loop_threads / width) {
        const int64_t row = o * tiling.n + j;
        const Value value = f(row * inner + i, row);
        for (int k = 0; k < Term::count; ++k) sum[k] += Term::get(value, k);
      }
    // Rows that share a warp first, then the warps.
    for (int k = 0; k < Term::count; ++k) {
      for (int flip = width; flip < 32; flip *= 2) sum[k] += __shfl_xor_sync(~0u, sum[k], flip);
      if (width >= 32) partial.value[k][thread] = sum[k];
      if (width < 32 && thread % 32 < width) partial.value[k][thread / 32 * width + column] = sum[k];
    }
    __syncthreads();
    const int parts = width < 32 ? loop_warps : loop_threads / width;
    if (thread < width && output < tiling.outputs())
      for (int k = 0; k < Term::count; ++k) {
        A total = 0;
        for (int p = 0; p < parts; ++p) total += partial.value[k][p * width + column];
        detail::store(detail::destination(out, k), (o * tiling.chunks + chunk) * inner + i, total);
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
  __device__ Several<A, K> operator()(int64_t i, int64_t) const {
    Several<A, K> value;
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
