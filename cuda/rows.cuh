// body(row, r) for r in [0, count) on a GPU.
//
// A row of at most 16 elements is walked by as many neighbouring lanes, rounded up to a power of two, so that a warp
// takes several; a row of at most `longest_of_warp` by a warp; a longer one by a block.  sum and max give every thread
// the result.  A walk, by each or once, stands between barriers: what the body read before is no longer needed, what
// the walk wrote is there for all, as on a CPU.
//
// A body walks its row several times, and reads it from memory each time.  Registers would hold it only if a body said
// which arrays are its row, and how they change, before it may look at any element: a second way to write every
// formula. What that would save is small: the first walk alone goes to the device's memory.  Rows that are walked at
// one time on one multiprocessor are about as large as its first cache, and together a fraction of the second one,
// where the later walks find them.  So the loops see to the first walk: neighbouring threads read neighbouring
// elements, and a fold has several reads of a thread under way.
#pragma once

#include <bit>

#include "cuda/blocks.cuh"

namespace orrery::cuda {

inline constexpr int longest_of_warp = 1024, longest_of_lanes = 16;

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

// Who walks a row: a part of a warp, a whole one, or a block.  `count` threads, of which this one is `index`; fold
// gives all of them what combine makes of their values, wait is a barrier among them.

// The lower lane's value always comes first, so every lane computes the same bits.
template <class A, class Combine>
__device__ A across_lanes(A value, Combine combine, unsigned lanes, unsigned mask) {
  for (unsigned flip = lanes / 2; flip > 0; flip /= 2) {
    const A other = __shfl_xor_sync(mask, value, static_cast<int>(flip));
    value = threadIdx.x & flip ? combine(other, value) : combine(value, other);
  }
  return value;
}

struct SomeLanes {
  unsigned lanes;  // a power of two, at most 16
  __device__ unsigned count() const { return lanes; }
  __device__ unsigned index() const { return threadIdx.x & (lanes - 1); }
  __device__ unsigned mask() const { return ((1u << lanes) - 1) << (threadIdx.x % 32 & ~(lanes - 1)); }
  template <class F>
  __device__ void between_barriers(const F& walk) const {
    __syncwarp(mask());
    walk();
    __syncwarp(mask());
  }
  template <class A, class Combine>
  __device__ A fold(A value, Combine combine) const {
    return across_lanes(value, combine, lanes, mask());
  }
};

struct Warp {
  __device__ static constexpr unsigned count() { return 32; }
  __device__ static unsigned index() { return threadIdx.x % 32; }
  template <class F>
  __device__ static void between_barriers(const F& walk) {
    __syncwarp();
    walk();
    __syncwarp();
  }
  template <class A, class Combine>
  __device__ static A fold(A value, Combine combine) {
    return across_lanes(value, combine, 32, ~0u);
  }
};

template <class A>
struct OfWarps {
  A value[loop_warps];
};
struct Block {
  __device__ static constexpr unsigned count() { return loop_threads; }
  __device__ static unsigned index() { return threadIdx.x; }
  template <class F>
  __device__ static void between_barriers(const F& walk) {
    __syncthreads();
    walk();
    __syncthreads();
  }
  template <class A, class Combine>
  __device__ static A fold(A value, Combine combine) {
    OfWarps<A>& of_warps = shared_memory<OfWarps<A>>();
    value = Warp::fold(value, combine);
    if (threadIdx.x % 32 == 0) of_warps.value[threadIdx.x / 32] = value;
    __syncthreads();
    value = of_warps.value[0];
    for (int w = 1; w < loop_warps; ++w) value = combine(value, of_warps.value[w]);
    __syncthreads();  // the next fold writes there
    return value;
  }
};

template <class Walkers>
struct RowOf {
  int n;
  Walkers walkers = {};

  template <class F>
  __device__ auto sum(const F& f) const {
    return fold(f, decltype(+f(0))(0), Plus{});
  }
  template <class F>
  __device__ auto max(const F& f) const {
    return fold(f, +f(0), Larger{});
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
  template <class F, class A, class Combine>
  __device__ A fold(const F& f, A value, Combine combine) const {
#pragma unroll 4
    for (unsigned i = walkers.index(); i < static_cast<unsigned>(n); i += walkers.count())
      value = combine(value, static_cast<A>(f(static_cast<int>(i))));
    return walkers.fold(value, combine);
  }
  template <class F>
  __device__ void walk(int count, const F& f) const {
    walkers.between_barriers([&] {
      for (unsigned i = walkers.index(); i < static_cast<unsigned>(count); i += walkers.count()) f(static_cast<int>(i));
    });
  }
};

template <class Body>
__global__ void __launch_bounds__(loop_threads)
    lanes_rows_kernel(int64_t count, int n, unsigned lanes, const Body body) {
  const unsigned rows = loop_threads / lanes;
  for (int64_t r = int64_t{blockIdx.x} * rows + threadIdx.x / lanes; r < count; r += int64_t{gridDim.x} * rows)
    body(RowOf<SomeLanes>{n, {lanes}}, r);
}
template <class Body>
__global__ void __launch_bounds__(loop_threads) warp_rows_kernel(int64_t count, int n, const Body body) {
  const int64_t step = int64_t{gridDim.x} * loop_warps;
  for (int64_t r = int64_t{blockIdx.x} * loop_warps + threadIdx.x / 32; r < count; r += step) body(RowOf<Warp>{n}, r);
}
template <class Body>
__global__ void __launch_bounds__(loop_threads) block_rows_kernel(int64_t count, int n, const Body body) {
  for (int64_t r = blockIdx.x; r < count; r += gridDim.x) body(RowOf<Block>{n}, r);
}

template <class Body>
void rows(int64_t count, int n, const Body& body) {
  if (count == 0) return;
  if (n <= longest_of_lanes) {
    const unsigned lanes = std::bit_ceil(static_cast<unsigned>(n));  // 1 for n = 0
    launch({"rows", blocks_for(pieces_of(count, loop_threads / lanes)), loop_threads}, lanes_rows_kernel<Body>, count,
           n, lanes, body);
  } else if (n <= longest_of_warp) {
    launch({"rows", blocks_for(pieces_of(count, loop_warps)), loop_threads}, warp_rows_kernel<Body>, count, n, body);
  } else {  // room for one value of any type per warp
    launch({"rows", blocks_for(count), loop_threads, sizeof(OfWarps<double>)}, block_rows_kernel<Body>, count, n, body);
  }
}

}  // namespace orrery::cuda
