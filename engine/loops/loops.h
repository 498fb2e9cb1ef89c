// Loops over memory: map, reduce, rows. The CPU's are here, the GPU's in cuda/loops/loops.cuh.
// Formulas are functors of float and double only.
//
// Only formula files, listed with orrery_formulas() in CMake, include this header. In a CUDA build
// nvcc compiles them for both devices. An #error forbids a second compiler in one program, because
// it would define the inline templates twice.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/loops/bf16_chunks.h"
#include "engine/loops/column_sums.h"
#include "engine/loops/terms.h"
#include "engine/math/approx_float.h"
#include "engine/system/parallel.h"
#include "engine/types/check.h"
#include "engine/types/device.h"
#include "engine/types/dtype.h"
#include "engine/types/host_device.h"

#if defined(ORRERY_CUDA) && !defined(__CUDACC__)
#error "this file contains formulas; list it with orrery_formulas(target files...), so that nvcc compiles it"
#endif
#if defined(__CUDACC__)
#pragma nv_diag_suppress 1675  // nvcc forwards GCC's pragmas, but warns
#endif
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wunknown-pragmas"  // ivdep is GCC's; clang checks overlap at run time
#endif

namespace orrery {

// The broadcasting of a map's inputs. The caller folds axes (engine/ops/broadcast.h): out is dense
// over size[0..rank), input k advances by stride[k][axis] elements; the innermost stride is 0 or 1.
template <int N>
struct Broadcast {
  int rank = 0;
  int64_t size[6] = {};
  int64_t stride[N][6] = {};
  HOST_DEVICE int64_t numel() const {
    int64_t n = 1;
    for (int a = 0; a < rank; ++a) n *= size[a];
    return n;
  }
  // Returns the offset in input k of index `row` over all axes except the last.
  HOST_DEVICE int64_t offset(int k, int64_t row) const {
    int64_t at = 0;
    for (int a = rank - 2; a >= 0; --a) at += row % size[a] * stride[k][a], row /= size[a];
    return at;
  }
};

namespace detail {

template <class T>
HOST_DEVICE Arithmetic<T> load(const T* p, int64_t i) {
  return static_cast<Arithmetic<T>>(p[i]);
}
template <class T, class A>
HOST_DEVICE void store(T* p, int64_t i, A value) {
  p[i] = static_cast<T>(value);
}
template <class T, int N, class A>
HOST_DEVICE void store(const Outputs<T, N>& out, int64_t i, const Values<A, N>& value) {
  for (int k = 0; k < N; ++k) out.pointer[k][i] = static_cast<T>(value[k]);
}

}  // namespace detail

// A destination of sums over rows that a loop over these rows computes on a GPU.
template <class A>
struct SumOfRows {
  A* out;           // null: not needed
  bool accumulate;  // else it is overwritten
  bool may_wait;    // its last kernel may wait (cuda/runtime/waiting.h)
};
}  // namespace orrery

#if defined(__CUDACC__) || defined(EMULATE_CUDA)
#include "cuda/loops/loops.cuh"
#else
#include "engine/loops/without_cuda.h"
#endif

namespace orrery {
namespace detail {

inline constexpr int64_t map_grain = 1 << 14;     // elements of a map, about 10 us of work
inline constexpr int64_t reduce_chunk = 1 << 14;  // elements of a sum per partial result

// The blocks in which a CPU's `reduce` adds n terms of each of `inner` sums: their number, and terms of a block.
struct SumBlocks {
  int64_t count, length;
};
inline SumBlocks blocks_of_sum(int64_t n, int64_t inner) {
  const int64_t terms_per_chunk = std::max<int64_t>(1, std::min<int64_t>(reduce_chunk / inner, reduce_chunk));
  const int64_t count = std::max<int64_t>(1, std::min<int64_t>((n + terms_per_chunk - 1) / terms_per_chunk, 64));
  return {count, (n + count - 1) / count};
}

// By value, so that no store can change the formula or a pointer. Flattened, here and below: one
// call that is not inlined, such as a long scalar function, prevents vectorization.
template <class F, class Out, class... T>
[[gnu::flatten]] HOST_DEVICE void map_elements(int64_t n, const F f, const Out out, const T* const... in) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) store(out, i, f(load(in, i)...));
}
// Maps i in [begin, end) on this thread.
template <class F, class Out, class... T>
HOST_DEVICE void map_range(int64_t begin, int64_t end, const F& f, const Out& out, const T* const... in) {
  if constexpr (uses_chunks<Out, T...>)
    map_chunks(end - begin, f, advanced(out, begin), (in + begin)...);
  else
    map_elements(end - begin, f, advanced(out, begin), (in + begin)...);
}

}  // namespace detail

// ---- map: out[i] = f(in[i]...)
//
// `out` is a T* or an Outputs<T, N>, and may be one of the inputs. f takes Arithmetic<...> values
// and returns one, or Values.
template <class F, class Out, class... T>
void map(Device device, int64_t n, const F& f, Out out, const T*... in) {
  if (device == Device::cuda) return cuda::map(n, f, out, in...);
  parallel_for(n, detail::map_grain, [&](int64_t begin, int64_t end) { detail::map_range(begin, end, f, out, in...); });
}

namespace detail {
// Maps one inner row. Its strides are template arguments, so that it vectorizes: bit k of Ones is
// set if input k advances.
template <unsigned Ones, class F, class Out, class... T, size_t... K>
[[gnu::flatten]] void map_row(std::index_sequence<K...>, int64_t first, int64_t n, const F f, const Out out,
                              const T* const... in) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) store(out, first + i, f(load(in, Ones >> K & 1u ? i : 0)...));
}
template <class F, class Out, class... T, size_t... K, unsigned... Ones>
void map_rows(std::index_sequence<K...> inputs, std::integer_sequence<unsigned, Ones...>, unsigned ones,
              const Broadcast<sizeof...(T)>& shape, int64_t begin, int64_t end, int64_t n, const F& f, Out out,
              const T*... in) {
  for (int64_t r = begin; r < end; ++r)
    ((ones == Ones ? map_row<Ones>(inputs, r * n, n, f, out, (in + shape.offset(K, r))...) : void()), ...);
}
}  // namespace detail

// Maps with broadcasting.
template <class F, class Out, class... T>
void map(Device device, const Broadcast<sizeof...(T)>& shape, const F& f, Out out, const T*... in) {
  if (device == Device::cuda) return cuda::map(shape, f, out, in...);
  constexpr unsigned cases = 1u << sizeof...(T);
  const int64_t n = shape.rank == 0 ? 1 : shape.size[shape.rank - 1], rows = n == 0 ? 0 : shape.numel() / n;
  unsigned ones = 0;
  for (unsigned k = 0; k < sizeof...(T); ++k)
    ones |= unsigned(shape.rank > 0 && shape.stride[k][shape.rank - 1] != 0) << k;
  parallel_for(rows, 1 + detail::map_grain / std::max<int64_t>(n, 1), [&](int64_t begin, int64_t end) {
    detail::map_rows(std::index_sequence_for<T...>(), std::make_integer_sequence<unsigned, cases>(), ones, shape, begin,
                     end, n, f, out, in...);
  });
}

// ---- rows: body(row, r) for r in [0, count)
//
// A row offers sum(f), max(f) and each(f), which call f(i) for i in [0, n). On a GPU many threads run the body; once(f)
// calls f in one of them, to store a value per row. In one call no f(i) may need the effects of another f(j). sum(f,
// in...) and max(f, in...) take f(in[i]...). map(out, f, in...) sets out[i] = f(in[i]...); out is one of the inputs or
// overlaps none. A GPU moves 16 bytes at once, a CPU converts bf16 in chunks. If f's result is rounded to T next, f may
// use functions of Row::FormulaFloat<T>, which are faster and less exact (engine/math/approx_float.h).
//
// Use `in = row.preload(array)` if the body reads the array several times and writes it only in the last loop, if at
// all. A GPU then holds it in registers (cuda/loops/rows.cuh); a CPU has it in its nearest cache anyway. Pass `in` to
// these loops instead of the array, and read it nowhere else. sum's f captures by value: a variable whose address a
// call may get cannot stay in a register. add_to_columns(f, in...) adds f(in[i]...) to the sums of column i in a loop
// that has sums (each_row_with_sums in engine/loops/tensor_loops.h).
//
// Sums on a CPU run in 32 fixed lanes, folded in fixed order: a plain sum does not vectorize
// without fast-math, and this one has the same bits for any vector width. A long sum is the sum of
// its halves, so that its rounding error grows with log n only, even if all terms are equal.
struct CpuRow {
  int n;

  template <class T>
  using FormulaFloat = orrery::FormulaFloat<T>;

  template <class T>
  HOST_DEVICE In<T> preload(In<T> in) const {
    return in;
  }
  template <class F, class... X>
  HOST_DEVICE auto sum(const F& f, In<X>... in) const {
    return sum_from(0, n, indexed(f, in...));
  }
  // Returns the largest value, or NaN if the first one is NaN. n must be at least 1. The unary plus
  // converts the result of Out<T>::operator[] to a number, and a bool to an int.
  template <class F, class... X>
  HOST_DEVICE auto max(const F& f, In<X>... in) const {
    const auto at = indexed(f, in...);
    return fold(at, +at(0), [](auto a, auto b) { return b > a ? b : a; });
  }
  // Returns the largest z and the sum of exp(z - the largest); on a GPU in one loop.
  template <class T, class A = Arithmetic<T>>
  HOST_DEVICE Values<A, 2> exponentials(In<T> z) const {
    const A top = max([](A x) { return x; }, z);
    return {{top, sum([=](A x) { return scalar::exp(x - top); }, z)}};
  }
  template <class F>
  [[gnu::flatten]] HOST_DEVICE void each(const F& f) const {
#pragma GCC ivdep
    for (int i = 0; i < n; ++i) f(i);
  }
  template <class T, class F, class... X>
  HOST_DEVICE void map(Out<T> out, const F& f, In<X>... in) const {
    detail::map_range(0, n, f, out.pointer, in.pointer...);
  }
  template <class T>
  HOST_DEVICE void copy(T* to, const T* from) const {
    for (int i = 0; i < n; ++i) to[i] = from[i];
  }
  template <class F>
  HOST_DEVICE void once(const F& f) const {
    f();
  }
  template <class F, class... X>
  HOST_DEVICE void add_to_columns(const F&, const X&...) const {}  // on a CPU sum_rows adds in its own order

 private:
  static constexpr int lanes = 32;  // at least two vectors, so that their additions overlap
  static constexpr int max_at_once = 4096;
  template <class F, class... X>
  HOST_DEVICE static auto indexed(const F& f, In<X>... in) {
    return [=](int i) {
      if constexpr (sizeof...(X) == 0)
        return f(i);
      else
        return f(in[i]...);
    };
  }
  template <class F>
  HOST_DEVICE static auto sum_from(int first, int count, const F& f) {
    using T = decltype(+f(0));
    if (count > max_at_once) return sum_of_halves(first, count, f);
    return CpuRow{count}.fold([&f, first](int i) { return f(first + i); }, T(0), [](T a, T b) { return a + b; });
  }
  // Not inlined: g++ would unfold the recursion eight times.
  template <class F, class T = decltype(+std::declval<const F&>()(0))>
  [[gnu::noinline]] HOST_DEVICE static T sum_of_halves(int first, int count, const F& f) {
    const int half = (count / 2 + max_at_once - 1) / max_at_once * max_at_once;
    const T before = sum_from(first, half, f);
    return before + sum_from(first + half, count - half, f);
  }
  template <class F, class T, class Combine>
  [[gnu::flatten]] HOST_DEVICE T fold(const F& f, T start, const Combine& combine) const {
    T lane[lanes];
    for (int l = 0; l < lanes; ++l) lane[l] = start;
    int i = 0;
    // Not unrolled: if the lanes become separate variables, g++ 12 vectorizes a conditional term
    // such as `x > 0 ? x : 0` wrongly.
    for (; i + lanes <= n; i += lanes) {
#pragma GCC unroll 1
      for (int l = 0; l < lanes; ++l) lane[l] = combine(lane[l], f(i + l));
    }
    if (i + lanes / 2 <= n) {
#pragma GCC unroll 1
      for (int l = 0; l < lanes / 2; ++l) lane[l] = combine(lane[l], f(i + l));
      i += lanes / 2;
    }
    for (int l = 0; i < n; ++i, ++l) lane[l] = combine(lane[l], f(i));
    // Not unrolled: g++ would unroll these loops before it vectorizes them.
#pragma GCC unroll 1
    for (int l = 0; l < lanes / 2; ++l) lane[l] = combine(lane[l], lane[l + lanes / 2]);
#pragma GCC unroll 1
    for (int l = 0; l < lanes / 4; ++l) lane[l] = combine(lane[l], lane[l + lanes / 4]);
    const auto pair = [&](int l) { return combine(lane[l], lane[l + 4]); };
    return combine(combine(pair(0), pair(2)), combine(pair(1), pair(3)));
  }
};

template <class Body>
void rows(Device device, int64_t count, int n, const Body& body) {
  if (device == Device::cuda) return cuda::rows(count, n, body);
  parallel_for(count, 1 + detail::map_grain / std::max(n, 1), [&](int64_t begin, int64_t end) {
    const Body mine = body;  // a copy that no store can change
    for (int64_t r = begin; r < end; ++r) mine(CpuRow{n}, r);
  });
}

// ---- reduce: out[o * inner + i] = sum over j in [0, n) of f(row * inner + i, row)
// with row = o * n + j, for o in [0, outer) and i in [0, inner)
//
// f takes the index and the row of an element of a dense (outer, n, inner) array. It returns a value, or Values<T, K>
// if out is Outputs<T, K>. It is called once per element, so it may also write data of that element; no call may depend
// on another's writes. The sum is cut into chunks by the sizes only, so results do not depend on the number of threads.
namespace detail {

// partial[k][i] = sum of column i over rows [first, last)
template <class A, int K, class F>
void reduce_block(const F f, int64_t first, int64_t last, int64_t inner, A* partial) {
  using Value = decltype(f(int64_t{0}, int64_t{0}));
  if (inner == 1) {
    for (int k = 0; k < K; ++k)
      partial[k] = CpuRow{static_cast<int>(last - first)}.sum(
          [=](int j) { return Terms<Value>::get(f(first + j, first + j), k); });
    return;
  }
  for (int64_t c = 0; c < inner; c += columns_at_once) {
    const int64_t columns = std::min(columns_at_once, inner - c);
    ColumnSums<A, K> sums;
    sum_columns(f, first, last, inner, c, columns, sums);
    for (int k = 0; k < K; ++k) std::copy_n(sums.values[k], columns, partial + k * inner + c);
  }
}

}  // namespace detail

template <class F, class Out>
void reduce(Device device, int64_t outer, int64_t n, int64_t inner, const F& f, Out out) {
  if (device == Device::cuda) return cuda::reduce(outer, n, inner, f, out);
  using Value = decltype(f(int64_t{0}, int64_t{0}));
  using A = typename detail::Terms<Value>::type;
  constexpr int K = detail::Terms<Value>::count;
  if (outer == 0 || inner == 0) return;
  const detail::SumBlocks blocks = detail::blocks_of_sum(n, inner);
  const int64_t chunks = blocks.count, length = blocks.length;
  std::vector<A> partial(static_cast<size_t>(outer * chunks * K * inner));
  A* const all = partial.data();
  const int64_t grain = std::max<int64_t>(1, detail::reduce_chunk / std::max<int64_t>(1, length * inner));
  parallel_for(outer * chunks, grain, [=, &f](int64_t begin, int64_t end) {
    for (int64_t u = begin; u < end; ++u) {
      const int64_t o = u / chunks, first = std::min(n, u % chunks * length), last = std::min(n, first + length);
      detail::reduce_block<A, K>(f, o * n + first, o * n + last, inner, all + u * K * inner);
    }
  });
  const int64_t columns = outer * inner;
  parallel_for(columns, detail::map_grain, [=](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const int64_t o = c / inner, i = c % inner;
      for (int k = 0; k < K; ++k) {
        A sum = 0;
        for (int64_t b = 0; b < chunks; ++b) sum += all[((o * chunks + b) * K + k) * inner + i];
        detail::store(detail::destination(out, k), c, sum);
      }
    }
  });
}

}  // namespace orrery

#if defined(__clang__)
#pragma clang diagnostic pop
#endif
