// out[i] = f(in[i]...) on a GPU.
//
// A thread takes a pack at a time: consecutive elements that fill 16 bytes in the smallest type,
// because 16-byte loads and stores keep the memory busy with the fewest instructions. Arrays not
// aligned to 16 bytes, and elements after the last whole pack, are processed one by one.
#pragma once

#include <algorithm>
#include <bit>
#include <utility>

#include "cuda/loops/blocks.cuh"
#include "engine/types/dtype.h"

namespace orrery::cuda {

template <class Out>
struct ElementOf;
template <class T>
struct ElementOf<T*> {
  using type = T;
};
template <class T, int N>
struct ElementOf<Outputs<T, N>> {
  using type = T;
};
template <class Out, class... T>
inline constexpr int pack_size = static_cast<int>(16 / std::min({sizeof(typename ElementOf<Out>::type), sizeof(T)...}));

template <int N>
struct [[gnu::may_alias]] alignas(16) Quads {
  uint32_t word[4 * N];
};
template <class T, int W>
struct Pack {
  T value[W];
};
// A loaded pack before its use, as 32-bit words: as elements, even small ones take a register each.
template <class T, int W>
using RawPack = std::conditional_t<W == 1, Pack<T, 1>, Quads<(W * sizeof(T) + 15) / 16>>;
template <int W, class T>
__device__ Pack<T, W> load_pack(const T* p) {
  if constexpr (W == 1)
    return {{*p}};
  else
    return std::bit_cast<Pack<T, W>>(*reinterpret_cast<const Quads<W * sizeof(T) / 16>*>(p));
}
template <int W, class T>
__device__ void store_pack(T* p, const Pack<T, W>& pack) {
  if constexpr (W == 1) {
    *p = pack.value[0];
  } else {
    const auto quads = std::bit_cast<Quads<W * sizeof(T) / 16>>(pack);
#if defined(__CUDA_ARCH__)  // nvcc 13 splits an assignment inside a branch into four stores
    for (int k = 0; k < static_cast<int>(sizeof(quads) / 16); ++k) {
      const uint32_t* const word = quads.word + 4 * k;
      asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p) + 16 * k), "r"(word[0]),
                   "r"(word[1]), "r"(word[2]), "r"(word[3])
                   : "memory");
    }
#else
    *reinterpret_cast<Quads<W * sizeof(T) / 16>*>(p) = quads;
#endif
  }
}

// Loads a pack; p may have any alignment unless Aligned.
template <bool Aligned, int W, class T>
__device__ RawPack<T, W> read_pack(const T* p) {
  if constexpr (W > 1 && Aligned) {
    return *reinterpret_cast<const RawPack<T, W>*>(p);
  } else {
    Pack<T, W> pack;
#pragma unroll
    for (int j = 0; j < W; ++j) pack.value[j] = p[j];
    return std::bit_cast<RawPack<T, W>>(pack);
  }
}
template <bool Aligned, int W, class T>
__device__ void write_pack(T* p, const Pack<T, W>& pack) {
  if constexpr (Aligned || W == 1) {
    store_pack<W>(p, pack);
  } else {
#pragma unroll
    for (int j = 0; j < W; ++j) p[j] = pack.value[j];
  }
}

// Calls use(p, load(p)) for p = first, first + step, ... below end, with AtOnce loads in flight.
template <int AtOnce, class Index, class Load, class Use>
__device__ void in_batches(Index first, Index end, Index step, const Load& load, const Use& use) {
  for (; first < end; first += AtOnce * step) {
#if defined(__CUDACC__)
    decltype(load(first)) loaded[AtOnce];  // elements are set before use
#else
    decltype(load(first)) loaded[AtOnce] = {};  // the host compiler cannot prove this
#endif
#pragma unroll
    for (int k = 0; k < AtOnce; ++k)
      if (const Index p = first + static_cast<Index>(k) * step; p < end) loaded[k] = load(p);
#pragma unroll
    for (int k = 0; k < AtOnce; ++k)
      if (const Index p = first + static_cast<Index>(k) * step; p < end) use(p, loaded[k]);
  }
}
// Stores out[i + j] = value(j) for the W elements of a pack.
template <int W, class T, class F>
__device__ void fill_pack(T* out, int64_t i, const F& value) {
  Pack<T, W> pack;
#pragma unroll
  for (int j = 0; j < W; ++j) detail::store(pack.value, j, value(j));
  store_pack<W>(out + i, pack);
}
template <int W, class T, int N, class F>
__device__ void fill_pack(const Outputs<T, N>& out, int64_t i, const F& value) {
  Pack<T, W> pack[N];
#pragma unroll
  for (int j = 0; j < W; ++j) {
    const auto several = value(j);
    for (int k = 0; k < N; ++k) detail::store(pack[k].value, j, several[k]);
  }
  for (int k = 0; k < N; ++k) store_pack<W>(out.pointer[k] + i, pack[k]);
}
template <int W, class F, class Out, class... T>
__device__ void map_pack(const F& f, const Out& out, int64_t i, const Pack<T, W>&... in) {
  fill_pack<W>(out, i, [&](int j) { return f(detail::load(in.value, j)...); });
}

// Returns the number of elements from p to the next multiple of 16 bytes.
template <class T>
__device__ unsigned elements_to_alignment(const T* p) {
  return static_cast<unsigned>(-reinterpret_cast<uintptr_t>(p) % 16 / sizeof(T));
}
template <class T>
HOST_DEVICE bool is_aligned(const T* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}
template <class T, int N>
bool is_aligned(const Outputs<T, N>& out) {
  return std::all_of(out.pointer, out.pointer + N, [](const T* p) { return is_aligned(p); });
}

template <class F, class Out, class... T>
__global__ void __launch_bounds__(loop_threads)
    map_kernel(int64_t packs, int64_t n, const F f, const Out out, const T*... in) {
  constexpr int W = pack_size<Out, T...>;
  const int64_t first = int64_t{blockIdx.x} * loop_threads + threadIdx.x, step = int64_t{gridDim.x} * loop_threads;
  wait_for_earlier();
  allow_next();
  for (int64_t p = first; p < packs; p += step) map_pack<W>(f, out, p * W, load_pack<W>(in + p * W)...);
  for (int64_t i = packs * W + first; i < n; i += step) detail::store(out, i, f(detail::load(in, i)...));
}

template <class F, class Out, class... T>
void map(int64_t n, const F& f, Out out, const T*... in) {
  if (n == 0) return;
  constexpr int W = pack_size<Out, T...>;
  const int64_t packs = is_aligned(out) && (is_aligned(in) && ...) ? n / W : 0;
  const int64_t iterations = std::max(packs, n - packs * W);  // iterations of the longer of the kernel's two loops
  launch({"map", blocks_for(ceil_div(iterations, loop_threads)), loop_threads}, map_kernel<F, Out, T...>, packs, n, f,
         out, in...);
}

// ---- with broadcasting: packs along the last axis, if its rows are whole packs

// Division by a constant as a multiplication: n / d = (n m / 2^32 + n) / 2^s for n < 2^31, with
// s = ceil log2 d and m = 2^32 (2^s - d) / d + 1. Granlund and Montgomery 1994.
struct Divisor {
  uint32_t divisor = 1, factor = 1, shift = 0;

  Divisor() = default;
  explicit Divisor(uint32_t d) : divisor(d), shift(static_cast<uint32_t>(std::bit_width(d - 1))) {
    factor = static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << shift) - d)) / d + 1);
  }
  HOST_DEVICE uint32_t quotient(uint32_t n) const {
    return (static_cast<uint32_t>(uint64_t{n} * factor >> 32) + n) >> shift;
  }
};

// A Broadcast whose last axis is counted in packs.
template <int N>
struct BroadcastPacks {
  int rank;
  unsigned advances;  // bit k: input k advances along the last axis
  Divisor size[6];
  int64_t stride[N][6];

  BroadcastPacks(const Broadcast<N>& shape, int pack) : rank(shape.rank), advances(0) {
    for (int a = 0; a < rank; ++a) {
      const bool last = a == rank - 1;
      size[a] = Divisor(static_cast<uint32_t>(last ? shape.size[a] / pack : shape.size[a]));
      for (int k = 0; k < N; ++k) stride[k][a] = shape.stride[k][a] * (last ? pack : 1);
    }
    for (int k = 0; k < N; ++k) advances |= unsigned{rank > 0 && shape.stride[k][rank - 1] != 0} << k;
  }
};

template <int W, class T>
__device__ Pack<T, W> load_pack(const T* p, bool advances) {
  if (advances) return load_pack<W>(p);
  Pack<T, W> same;
  const T value = *p;
#pragma unroll
  for (int j = 0; j < W; ++j) same.value[j] = value;
  return same;
}
template <int W, class Packs, class F, class Out, class... T, size_t... K>
__device__ void map_packs(std::index_sequence<K...>, const Packs& shape, uint32_t p, const F& f, const Out& out,
                          const T*... in) {
  int64_t offset[sizeof...(T)] = {};
  uint32_t rest = p;
  for (int a = shape.rank - 1; a >= 0; --a) {
    const uint32_t above = a > 0 ? shape.size[a].quotient(rest) : 0, index = rest - above * shape.size[a].divisor;
    ((offset[K] += int64_t{index} * shape.stride[K][a]), ...);
    rest = above;
  }
  map_pack<W>(f, out, int64_t{p} * W, load_pack<W>(in + offset[K], shape.advances >> K & 1u)...);
}
template <int W, class Packs, class F, class Out, class... T>
__global__ void __launch_bounds__(loop_threads)
    broadcast_kernel(uint32_t packs, const __grid_constant__ Packs shape, const F f, const Out out, const T*... in) {
  const uint32_t step = gridDim.x * loop_threads;
  wait_for_earlier();
  allow_next();
  for (uint32_t p = blockIdx.x * loop_threads + threadIdx.x; p < packs; p += step)
    map_packs<W>(std::index_sequence_for<T...>(), shape, p, f, out, in...);
}

template <int W, class F, class Out, class... T>
void launch_broadcast(const Broadcast<sizeof...(T)>& shape, const F& f, Out out, const T*... in) {
  using Packs = BroadcastPacks<sizeof...(T)>;
  const int64_t packs = shape.numel() / W;
  launch({"map", blocks_for(ceil_div(packs, loop_threads)), loop_threads}, broadcast_kernel<W, Packs, F, Out, T...>,
         static_cast<uint32_t>(packs), Packs(shape, W), f, out, in...);
}

// Returns true if rows are whole packs and begin at one in each input that advances along them.
template <int N>
bool whole_packs(const Broadcast<N>& shape, int pack) {
  const int last = shape.rank - 1;
  bool whole = last >= 0 && shape.size[last] % pack == 0;
  for (int k = 0; k < N && whole; ++k)
    for (int a = 0; a < last; ++a) whole = whole && (shape.stride[k][last] == 0 || shape.stride[k][a] % pack == 0);
  return whole;
}

template <class T>
T* advanced(T* out, int64_t by) {
  return out + by;
}
template <class T, int N>
Outputs<T, N> advanced(Outputs<T, N> out, int64_t by) {
  for (T*& p : out.pointer) p += by;
  return out;
}

// Maps in launches of at most `max_elements`: 32-bit indices make divisions several times faster.
template <class F, class Out, class... T, size_t... K>
void split_map(std::index_sequence<K...> inputs, int64_t max_elements, const Broadcast<sizeof...(T)>& shape, const F& f,
               Out out, const T*... in) {
  const int64_t n = shape.numel();
  if (n == 0) return;
  if (n > max_elements) {
    int axis = 0;
    while (shape.size[axis] == 1) ++axis;
    Broadcast<sizeof...(T)> part = shape;
    const int64_t half = shape.size[axis] / 2, slice_size = n / shape.size[axis];
    part.size[axis] = half;
    split_map(inputs, max_elements, part, f, out, in...);
    part.size[axis] = shape.size[axis] - half;
    split_map(inputs, max_elements, part, f, advanced(out, half * slice_size), in + half * shape.stride[K][axis]...);
    return;
  }
  constexpr int W = pack_size<Out, T...>;
  const bool in_packs = whole_packs(shape, W) && is_aligned(out) && (is_aligned(in) && ...);
  in_packs ? launch_broadcast<W>(shape, f, out, in...) : launch_broadcast<1>(shape, f, out, in...);
}

template <class F, class Out, class... T>
void map(const Broadcast<sizeof...(T)>& shape, const F& f, Out out, const T*... in) {
  constexpr int64_t max_elements = int64_t{1} << 30;
  split_map(std::index_sequence_for<T...>(), max_elements, shape, f, out, in...);
}

}  // namespace orrery::cuda
