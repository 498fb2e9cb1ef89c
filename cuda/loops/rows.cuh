// body(row, r) for r in [0, count) on a GPU.
//
// A row of n <= 16 elements takes n consecutive lanes, rounded up to a power of two, so a warp has
// several rows; up to `max_warp_row` elements take a warp, more a block. sum and max return the
// result to every thread. each, map, copy and once run between barriers: as on a CPU, earlier reads
// are complete, and later code of all threads reads what they wrote.
//
// The threads and order of a fold depend on the row's length alone. Rows of at least 256 elements,
// in whole packs of eight, go by pack: loads from aligned arrays are 16 bytes wide, and several are
// in flight before the first use. Other rows, and loops whose body takes an index instead of
// elements, go by element, consecutive elements to consecutive threads.
//
// `row.preload(in)` loads the thread's elements into registers, in the stored dtype, all loads in
// flight at once, so that a body with several loops reads memory once. Registers cannot be indexed
// at run time, so loops over preloaded rows are unrolled. Each loop reads again what does not fit:
// elements beyond 4,096, or beyond 256 if a warp's row is not whole packs.
#pragma once

#include <bit>
#include <limits>
#include <tuple>

#include "cuda/loops/blocks.cuh"
#include "cuda/loops/lanes.cuh"
#include "cuda/loops/map.cuh"
#include "engine/math/approx_float.h"

namespace orrery::cuda {

inline constexpr int max_warp_row = 1024, max_lanes_row = 16;
inline constexpr int pack_of_row = 8;                    // elements: 16 bytes of the smallest type
inline constexpr int min_packed_row = 32 * pack_of_row;  // elements: one pack for each lane of a warp

// The threads of a row: lanes of a warp, a warp, or a block; `count` threads, this one is `index`.
// They take packs of `pack` elements; each can preload `packs` packs, which covers the row if
// `preloads_all`. `fold` returns to each thread their values folded with `combine`.

struct SomeLanes {
  static constexpr int pack = 1, packs = 1;
  static constexpr bool preloads_all = true;
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

template <int Pack>
struct Warp {
  static constexpr int pack = Pack, packs = (Pack == 1 ? min_packed_row : max_warp_row) / 32 / Pack;
  static constexpr bool preloads_all = Pack > 1;  // a register for each single element would be too many
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
struct PerWarp {
  A value[loop_warps];
};
template <int Pack>
struct Block {
  static constexpr int pack = Pack, packs = 16 / Pack;
  static constexpr bool preloads_all = false;
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
    PerWarp<A>& per_warp = shared_memory<PerWarp<A>>();
    value = across_lanes(value, combine, 32);
    if (threadIdx.x % 32 == 0) per_warp.value[threadIdx.x / 32] = value;
    __syncthreads();
    value = per_warp.value[0];
    for (int w = 1; w < loop_warps; ++w) value = combine(value, per_warp.value[w]);
    __syncthreads();  // the next fold writes `per_warp`
    return value;
  }
};

// An array and the packs of it that this thread holds: `index`, `index + count`, ...
template <class T, int W, int Packs>
struct Preloaded {
  In<T> in;
  RawPack<T, W> pack[Packs] = {};
  __device__ explicit operator bool() const { return static_cast<bool>(in); }
};
template <class X>
inline constexpr bool is_preloaded = false;
template <class T, int W, int Packs>
inline constexpr bool is_preloaded<Preloaded<T, W, Packs>> = true;
template <class T>
__device__ In<T> array_of(In<T> in) {
  return in;
}
template <class T, int W, int Packs>
__device__ In<T> array_of(const Preloaded<T, W, Packs>& preloaded) {
  return preloaded.in;
}
template <bool Aligned, int W, class T>
__device__ RawPack<T, W> pack_of(In<T> in, unsigned p, int) {
  return read_pack<Aligned, W>(in.pointer + p * W);
}
template <bool, int W, class T, int Packs>
__device__ RawPack<T, W> pack_of(const Preloaded<T, W, Packs>& preloaded, unsigned, int slot) {
  return preloaded.pack[slot];
}
// Returns the elements of `raw`, a pack of the array `in`.
template <int W, class X>
__device__ auto elements_of(const X& in, const auto& raw) {
  using T = std::remove_cvref_t<decltype(*array_of(in).pointer)>;
  return std::bit_cast<Pack<T, W>>(raw);
}

// Sums of the columns of a thread's rows: K sums of each element of its packs.
template <class A, int K, class Threads>
struct ColumnSums {
  A value[Threads::packs][Threads::pack][K] = {};
};
struct NoColumnSums {};

template <class Threads, class Sums = NoColumnSums>
struct RowOf {
  int n;
  Threads threads = {};
  Sums* sums = nullptr;

  template <class T>
  using FormulaFloat = orrery::FormulaFloat<T>;

  template <class T>
  __device__ auto preload(In<T> in) const {
    constexpr int W = Threads::pack;
    Preloaded<T, W, Threads::packs> preloaded{in};
    const auto load = [&]<bool Aligned>(std::bool_constant<Aligned>) {
#pragma unroll
      for (int slot = 0; slot < Threads::packs; ++slot)
        if (const unsigned p = pack_in(slot); p < all_packs()) preloaded.pack[slot] = pack_of<Aligned, W>(in, p, slot);
    };
    if (in) by_alignment(load, is_aligned(in.pointer));
    return preloaded;
  }
  template <class F, class... X>
  __device__ auto sum(const F& f, const X&... in) const {
    if constexpr (sizeof...(X) == 0)
      return fold(f, decltype(+f(0))(0), Plus{});
    else
      return fold(f, decltype(+f(array_of(in)[0]...))(0), Plus{}, in...);
  }
  template <class F, class... X>
  __device__ auto max(const F& f, const X&... in) const {
    if constexpr (sizeof...(X) == 0)
      return fold(f, +f(0), Larger{});
    else
      return fold(f, +f(array_of(in)[0]...), Larger{}, in...);
  }
  // Returns {max z, sum of exp(z - max z)} to every thread, in one loop (online softmax).
  template <class X>
  __device__ auto exponentials(const X& z) const {
    using A = decltype(array_of(z)[0]);
    using Number = FormulaFloat<std::remove_cvref_t<decltype(*array_of(z).pointer)>>;  // enough for z of bf16
    const auto exp = [](A x) { return to_float(scalar::exp(Number(x))); };
    A top = std::numeric_limits<A>::lowest(), total = 0;  // not -infinity, which all z of a thread may be
    const auto add_pack = [&](unsigned, const auto& pack) {
      A above = top;
      for (int j = 0; j < Threads::pack; ++j) above = Larger{}(above, detail::load(pack.value, j));
      if (above > top) total *= exp(top - above), top = above;
      for (int j = 0; j < Threads::pack; ++j) total += exp(detail::load(pack.value, j) - top);
    };
    by_alignment([&]<bool Aligned>(std::bool_constant<Aligned>) { packs<Aligned>(add_pack, z); }, reads_aligned(z));
    const A row_max = threads.fold(top, Larger{});
    return Values<A, 2>{{row_max, threads.fold(total * exp(top - row_max), Plus{})}};
  }
  template <class F>
  __device__ void each(const F& f) const {
    threads.between_barriers([&] {
      for (unsigned i = threads.index(); i < length(); i += threads.count()) f(static_cast<int>(i));
    });
  }
  template <class T, class F, class... X>
  __device__ void map(Out<T> out, const F& f, const X&... in) const {
    threads.between_barriers([&] {
      if constexpr ((is_preloaded<X> || ...)) {
        const auto one_pack = [&]<bool Aligned>(std::bool_constant<Aligned>) {
          packs<Aligned>(
              [&](unsigned p, const auto&... pack) {
                Pack<T, Threads::pack> result;
                for (int j = 0; j < Threads::pack; ++j)
                  detail::store(result.value, j, f(detail::load(pack.value, j)...));
                write_pack<Aligned>(out.pointer + p * Threads::pack, result);
              },
              in...);
        };
        by_alignment(one_pack, is_aligned(out.pointer) && (reads_aligned(in) && ...));
      } else {
        constexpr int W = pack_size<T*, std::remove_cvref_t<decltype(*in.pointer)>...>;
        stream<W>(
            out.pointer, [&](unsigned i) { detail::store(out.pointer, i, f(in[i]...)); },
            [&](unsigned i, const auto&... x) {
              fill_pack<W>(out.pointer, i, [&](int j) { return f(detail::load(x.value, j)...); });
            },
            in...);
      }
    });
  }
  template <class T>
  __device__ void copy(T* to, const T* from) const {
    constexpr int W = pack_size<T*>;
    threads.between_barriers([&] {
      stream<W>(
          to, [&](unsigned i) { to[i] = from[i]; },
          [&](unsigned i, const Pack<T, W>& pack) { store_pack<W>(to + i, pack); }, In<T>{from});
    });
  }
  template <class F>
  __device__ void once(const F& f) const {
    threads.between_barriers([&] {
      if (threads.index() == 0) f();
    });
  }

  // Adds f(in[i]...), K values, to the sums of column i, if the loop has them; in: preloaded.
  template <class F, class... X>
  __device__ void add_to_columns(const F& f, const X&... in) const {
    if constexpr (!std::is_same_v<Sums, NoColumnSums>)
#pragma unroll
      for (int slot = 0; slot < Threads::packs; ++slot)
        if (pack_in(slot) < all_packs())
#pragma unroll
          for (int j = 0; j < Threads::pack; ++j) {
            auto value = f(detail::load(elements_of<Threads::pack>(in, in.pack[slot]).value, j)...);
            for (size_t k = 0; k < std::size(sums->value[slot][j]); ++k)
              sums->value[slot][j][k] += detail::Terms<decltype(value)>::get(value, static_cast<int>(k));
          }
  }

 private:
  __device__ unsigned length() const { return static_cast<unsigned>(n); }
  __device__ unsigned all_packs() const { return length() / Threads::pack; }
  __device__ unsigned pack_in(int slot) const {
    return threads.index() + static_cast<unsigned>(slot) * threads.count();
  }

  // Calls walk(true_type) if its arrays are aligned to 16 bytes, else walk(false_type).
  template <class Walk>
  __device__ static void by_alignment(const Walk& walk, bool aligned) {
    if constexpr (Threads::pack == 1)
      walk(std::true_type());
    else
      aligned ? walk(std::true_type()) : walk(std::false_type());
  }
  template <class X>
  __device__ static bool reads_aligned(const X& in) {
    return (is_preloaded<X> && Threads::preloads_all) || is_aligned(array_of(in).pointer);
  }
  // Calls use(p, pack...) for this thread's packs of the arrays, in order.
  template <bool Aligned, class Use, class... X>
  __device__ void packs(const Use& use, const X&... in) const {
    constexpr int W = Threads::pack, loads = W == 1 ? 8 : 4, at_once = sizeof...(X) > 1 ? loads / 2 : loads;
    unsigned begin = threads.index();
    if constexpr ((is_preloaded<X> || ...)) {
#pragma unroll
      for (int slot = 0; slot < Threads::packs; ++slot)
        if (const unsigned p = pack_in(slot); p < all_packs())
          use(p, elements_of<W>(in, pack_of<Aligned, W>(in, p, slot))...);
      if constexpr (Threads::preloads_all) return;
      begin = pack_in(Threads::packs);
    }
    in_batches<Aligned ? at_once : 1>(
        begin, all_packs(), threads.count(),
        [&](unsigned p) { return std::make_tuple(read_pack<Aligned, W>(array_of(in).pointer + p * W)...); },
        [&](unsigned p, const auto& loaded) {
          std::apply([&](const auto&... raw) { use(p, elements_of<W>(in, raw)...); }, loaded);
        });
  }
  // Folds f of this thread's elements, or of indices if there is no array, then across threads.
  template <class F, class A, class Combine, class... X>
  __device__ A fold(const F& f, A value, Combine combine, const X&... in) const {
    const auto add = [&](auto term) { value = combine(value, static_cast<A>(term)); };
    if constexpr (sizeof...(X) == 0) {
#pragma unroll 4
      for (unsigned i = threads.index(); i < length(); i += threads.count()) add(f(static_cast<int>(i)));
    } else {
      const auto add_pack = [&](unsigned, const auto&... pack) {
#pragma unroll
        for (int j = 0; j < Threads::pack; ++j) add(f(detail::load(pack.value, j)...));
      };
      by_alignment([&]<bool Aligned>(std::bool_constant<Aligned>) { packs<Aligned>(add_pack, in...); },
                   (reads_aligned(in) && ...));
    }
    return threads.fold(value, combine);
  }
  // Calls one(i) or many(i, packs...). Rows of odd length have any alignment: many() starts where
  // all arrays reach a multiple of 16 bytes; if there is no such element, one() takes all.
  template <int W, class T, class One, class Many, class... X>
  __device__ void stream(T* out, const One& one, const Many& many, In<X>... in) const {
    const unsigned size = length(), me = threads.index(), step = threads.count();
    const unsigned before = elements_to_alignment(out);
    const bool together = ((elements_to_alignment(in.pointer) == before) && ...);
    const unsigned first = together && before < size ? before : size, packs = (size - first) / W;
    for (unsigned i = me; i < first; i += step) one(i);
    in_batches<sizeof...(X) == 1 ? 4 : 2>(
        me, packs, step, [&](unsigned p) { return std::make_tuple(read_pack<true, W>(in.pointer + first + p * W)...); },
        [&](unsigned p, const auto& loaded) {
          std::apply([&](const auto&... raw) { many(first + p * W, elements_of<W>(in, raw)...); }, loaded);
        });
    for (unsigned i = first + packs * W + me; i < size; i += step) one(i);
  }
};

template <class Body>
__global__ void __launch_bounds__(loop_threads)
    lanes_rows_kernel(int64_t count, int n, unsigned lanes, const Body body) {
  const unsigned rows = loop_threads / lanes;
  wait_for_earlier();
  allow_next();
  for (int64_t r = int64_t{blockIdx.x} * rows + threadIdx.x / lanes; r < count; r += int64_t{gridDim.x} * rows)
    body(RowOf<SomeLanes>{n, {lanes}}, r);
}
template <class Body, int Pack>
__global__ void __launch_bounds__(loop_threads) warp_rows_kernel(int64_t count, int n, const Body body) {
  const int64_t step = int64_t{gridDim.x} * loop_warps;
  wait_for_earlier();
  allow_next();
  for (int64_t r = int64_t{blockIdx.x} * loop_warps + threadIdx.x / 32; r < count; r += step)
    body(RowOf<Warp<Pack>>{n}, r);
}
template <class Body, int Pack>
__global__ void __launch_bounds__(loop_threads) block_rows_kernel(int64_t count, int n, const Body body) {
  wait_for_earlier();
  allow_next();
  for (int64_t r = blockIdx.x; r < count; r += gridDim.x) body(RowOf<Block<Pack>>{n}, r);
}

template <class Body>
void rows(int64_t count, int n, const Body& body) {
  if (count == 0) return;
  const bool in_packs = n % pack_of_row == 0 && n >= min_packed_row;
  if (n <= max_lanes_row) {
    const unsigned lanes = std::bit_ceil(static_cast<unsigned>(n));  // 1 for n = 0
    launch({"rows", blocks_for(ceil_div(count, loop_threads / lanes)), loop_threads}, lanes_rows_kernel<Body>, count, n,
           lanes, body);
  } else if (n <= max_warp_row) {
    launch({"rows", blocks_for(ceil_div(count, loop_warps)), loop_threads},
           in_packs ? warp_rows_kernel<Body, pack_of_row> : warp_rows_kernel<Body, 1>, count, n, body);
  } else {  // shared memory: one value of any type per warp
    launch({"rows", blocks_for(count), loop_threads, sizeof(PerWarp<double>)},
           in_packs ? block_rows_kernel<Body, pack_of_row> : block_rows_kernel<Body, 1>, count, n, body);
  }
}

}  // namespace orrery::cuda
