// body(row, r) for r in [0, count) on a GPU.
//
// A row of at most 16 elements is walked by as many neighbouring lanes, rounded up to a power of two, so that a warp
// takes several; a row of at most `longest_of_warp` by a warp; a longer one by a block.  sum and max give every thread
// the result.  A walk, by each or once, stands between barriers: what the body read before is no longer needed, what
// the walk wrote is there for all, as on a CPU.
//
// A body that walks a row several times reads it from the device's memory once, if it holds it: `row.hold(in)` loads
// what the thread will look at into as many registers, all loads in flight at one time.  A register cannot be chosen at
// run time, so walks over rows that are held are unrolled, and a place in the row knows its register as a constant:
// hence bodies that say `auto i` for it.  What does not fit, the rest of rows beyond 4,096 elements, is read again
// from memory at each walk.  Rows that are not held are read with several loads of a thread in flight.
#pragma once

#include <bit>

#include "cuda/loops/blocks.cuh"
#include "cuda/loops/lanes.cuh"
#include "cuda/loops/map.cuh"
#include "engine/base/coarse.h"

namespace orrery::cuda {

inline constexpr int longest_of_warp = 1024, longest_of_lanes = 16;

// Who walks a row: a part of a warp, a whole one, or a block.  `count` threads, of which this one is `index`; each can
// hold `slots` elements, and that is all of a row if `hold_all`.  fold gives all of them what combine makes of their
// values.

struct SomeLanes {
  static constexpr int slots = 1;
  static constexpr bool hold_all = true;
  unsigned lanes;  // a power of two, at most 16, at least the row's length
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
  static constexpr int slots = longest_of_warp / 32;
  static constexpr bool hold_all = true;
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
    return across_lanes(value, combine, 32);
  }
};

template <class A>
struct OfWarps {
  A value[loop_warps];
};
struct Block {
  static constexpr int slots = 16;
  static constexpr bool hold_all = false;
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

// Element `index` of a row; its thread holds it, if at all, in register `slot`.
struct Element {
  int index, slot;
  __device__ operator int() const { return index; }
};
template <class T, int Slots>
struct Held {
  In<T> in;
  Arithmetic<T> value[Slots] = {};
  template <class Row>
  __device__ Held(In<T> in, const Row& row) : in(in) {
    row.elements_held([&](Element i) { value[i.slot] = in[i.index]; });
  }
  __device__ Arithmetic<T> operator[](Element i) const { return i.slot < Slots ? value[i.slot] : in[i.index]; }
};
// Whether a walk may look at what is held: it then takes an Element as it is, as `auto`, not as an int.
template <class F>
concept TakesElements = !requires {
  &F::operator();
};

template <class Walkers>
struct RowOf {
  int n;
  Walkers walkers = {};

  template <class T>
  using BeforeRounding = orrery::BeforeRounding<T>;

  template <class T>
  __device__ Held<T, Walkers::slots> hold(In<T> in) const {
    return {in, *this};
  }
  template <class F>
  __device__ auto sum(const F& f) const {
    return fold(f, decltype(+f(Element{}))(0), Plus{});
  }
  template <class F>
  __device__ auto max(const F& f) const {
    return fold(f, +f(Element{0, Walkers::slots}), Larger{});
  }
  template <class F>
  __device__ void each(const F& f) const {
    walkers.between_barriers([&] { elements<1, F>(f); });
  }
  // Rows of an odd length begin anywhere: where all arrays lie at one distance from a multiple of 16 bytes, packs are
  // taken from there on, else elements.
  template <class T, class F, class... X>
  __device__ void map(Out<T> out, const F& f, In<X>... in) const {
    constexpr int W = pack_size<T*, X...>;
    const unsigned size = static_cast<unsigned>(n), me = walkers.index(), step = walkers.count();
    const auto one = [&](unsigned i) { detail::store(out.pointer, i, f(in[i]...)); };
    walkers.between_barriers([&] {
      const unsigned before = elements_to_quads(out.pointer);
      const bool together = ((elements_to_quads(in.pointer) == before) && ...);
      const unsigned first = together && before < size ? before : size, packs = (size - first) / W;
      for (unsigned i = me; i < first; i += step) one(i);
      for (unsigned p = me; p < packs; p += step) {
        const unsigned i = first + p * W;
        const auto pack = [&](const auto&... x) {
          fill_pack<W>(out.pointer, i, [&](int j) { return f(detail::load(x.value, j)...); });
        };
        pack(load_pack<W>(in.pointer + i)...);
      }
      for (unsigned i = first + packs * W + me; i < size; i += step) one(i);
    });
  }
  template <class F>
  __device__ void once(const F& f) const {
    walkers.between_barriers([&] {
      if (walkers.index() == 0) f();
    });
  }

  // f of this thread's elements that can be held.
  template <class F>
  __device__ void elements_held(const F& f) const {
#pragma unroll
    for (int slot = 0; slot < Walkers::slots; ++slot) {
      const int i = static_cast<int>(walkers.index() + static_cast<unsigned>(slot) * walkers.count());
      if (i < n) f(Element{i, slot});
    }
  }

 private:
  // f of this thread's elements, in order, for a walk with this body.  AtOnce: how many of those that are not held.
  template <int AtOnce, class Body, class F>
  __device__ void elements(const F& f) const {
    unsigned i = walkers.index();
    if constexpr (TakesElements<Body>) {
      elements_held(f);
      if constexpr (Walkers::hold_all) return;
      i += Walkers::slots * walkers.count();
    }
#pragma unroll AtOnce
    for (; i < static_cast<unsigned>(n); i += walkers.count()) f(Element{static_cast<int>(i), Walkers::slots});
  }
  template <class F, class A, class Combine>
  __device__ A fold(const F& f, A value, Combine combine) const {
    elements<4, F>([&](Element i) { value = combine(value, static_cast<A>(f(i))); });
    return walkers.fold(value, combine);
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
