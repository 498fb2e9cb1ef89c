// Sums over the n rows of an array (outer, n, inner) on a GPU: K sums per output (outer, inner).
//
// A tile is `width` consecutive outputs times one chunk of the n rows; loop_threads / width threads
// share an output. Consecutive threads read adjacent outputs (sums of columns) or, if inner = 1,
// adjacent terms of one output. A second, smaller sum in the same launch adds the chunks.
//
// Long sums of a TermBody (engine/loops/tensor_loops.h) use packs of W adjacent elements: either W
// outputs, and then `width` and `inner` count packs, or W terms. The choice depends on sizes alone.
// Packs of arrays not aligned to 16 bytes are read element by element.
#pragma once

#include "cuda/loops/blocks.cuh"
#include "cuda/loops/map.cuh"
#include "engine/types/dtype.h"

namespace orrery::cuda {

inline constexpr int64_t max_split_tiles = 512;  // maximum tiles of outputs whose sums are cut into chunks
inline constexpr int packs_of_line = 8;          // 128 bytes, read by consecutive threads

// Values of operands for a pack of W elements: [j] is the value for element j.
template <int W, class T>
struct PackRead {
  RawPack<T, W> raw;
  __device__ Arithmetic<T> operator[](int j) const { return detail::load(std::bit_cast<Pack<T, W>>(raw).value, j); }
};
template <class A>
struct SameForAll {
  A value;
  __device__ A operator[](int) const { return value; }
};
struct IndexFrom {
  int64_t first;
  __device__ int64_t operator[](int j) const { return first + j; }
};
template <int W, bool Aligned>
struct PackOfColumns {  // W adjacent columns of row r
  template <class T>
  __device__ PackRead<W, T> elements(const T* p) const {
    return {read_pack<Aligned, W>(p)};
  }
  template <class T>  // of an operand with one number per row; `column`: per column
  __device__ SameForAll<Arithmetic<T>> number(const T* all, int64_t r) const {
    return {detail::load(all, r)};
  }
  template <class T>
  __device__ PackRead<W, T> column(const T* all, int64_t c) const {
    return elements(all + c);
  }
  __device__ SameForAll<int64_t> index(int64_t r) const { return {r}; }
};
template <int W, bool Aligned>
struct PackOfRows {  // one element of each of W consecutive rows, from row r
  template <class T>
  __device__ PackRead<W, T> elements(const T* p) const {
    return {read_pack<Aligned, W>(p)};
  }
  template <class T>
  __device__ PackRead<W, T> number(const T* all, int64_t r) const {
    return elements(all + r);
  }
  template <class T>
  __device__ SameForAll<Arithmetic<T>> column(const T* all, int64_t c) const {
    return {detail::load(all, c)};
  }
  __device__ IndexFrom index(int64_t r) const { return {r}; }
};

struct Tiling {
  int64_t outer, n, inner;
  int width;               // outputs of a tile, a power of two
  int64_t chunks, length;  // chunks of the n rows; rows per chunk

  HOST_DEVICE int64_t outputs() const { return outer * inner; }
  HOST_DEVICE int64_t tiles_of_chunk() const { return (outputs() + width - 1) / width; }
  HOST_DEVICE int64_t outer_of(int64_t output) const { return outer == 1 ? 0 : output / inner; }

  // A tile has at most `max_width` outputs, at least `adjacent` if inner has as many, and the fewer,
  // the longer the sums, because then more threads share an output. Sums are cut into chunks if the
  // tiles alone are at most half of the `enough_blocks` that occupy a GPU.
  static Tiling of(int64_t outer, int64_t n, int64_t inner, int max_width, int adjacent, int64_t enough_blocks) {
    constexpr int64_t min_thread_rows = 4;
    int min_width = 1;
    while (min_width < adjacent && min_width < inner) min_width *= 2;
    int width = max_width;
    while (width > min_width && loop_threads / width * min_thread_rows * 2 <= n) width /= 2;
    Tiling tiling{outer, n, inner, width, 1, n};
    const int64_t min_length = loop_threads / width * min_thread_rows * 2;
    const int64_t wanted = std::min(enough_blocks / tiling.tiles_of_chunk(), n / min_length);
    if (wanted < 2) return tiling;
    tiling.length = ceil_div(n, wanted);
    tiling.chunks = ceil_div(n, tiling.length);
    return tiling;
  }
};

// A thread adds the terms start, start + step, ... of output `column` of the tile. Lanes then add
// sums by xor shuffles with flip, 2 flip, ... < flip_end. If `writes`, it writes sum `partial_index`.
struct ThreadRole {
  int column, start, step, flip, flip_end, partial_index, partial_count;
  bool writes;

  __device__ ThreadRole(const Tiling& tiling, int thread) {
    const int width = tiling.width;
    step = loop_threads / width;
    if (tiling.inner == 1) {  // consecutive threads add adjacent terms
      column = thread / step, start = thread % step;
      flip = 1, flip_end = step < 32 ? step : 32;
      partial_index = start / 32, partial_count = (step + 31) / 32;
      writes = start % 32 == 0;
    } else {  // consecutive threads add to adjacent outputs
      column = thread % width, start = thread / width;
      flip = width, flip_end = 32;
      partial_index = width < 32 ? thread / 32 : start, partial_count = width < 32 ? loop_warps : step;
      writes = width >= 32 || thread % 32 < width;
    }
  }
};

template <class A, int K>
struct Sums {
  A value[K] = {};
};
template <int W, class A, int K>
struct PartialSums {
  A value[K][W * loop_threads];
  bool last;  // true if this block wrote the tile's last chunk sum
};
template <class Value, class A, int K>
__device__ void add_term(Sums<A, K>& sum, const Value& value) {
  for (int k = 0; k < K; ++k) sum.value[k] += detail::Terms<Value>::get(value, k);
}

// Rows first, first + step, ... < last of one output (o, i); `before` = o n rows precede them.
struct RowsOfThread {
  int64_t first, last, step, before, inner, i;
  __device__ int64_t row(int64_t j) const { return before + j; }
  __device__ int64_t term(int64_t j) const { return row(j) * inner + i; }
};

// A thread's step: it reads `size` terms at a time, of `outputs` outputs; `add` adds them to `sum`.
struct Elements {
  static constexpr int size = 1, outputs = 1;
  template <class F, class A, int K>
  __device__ static void add(const F& f, const RowsOfThread& rows, bool, Sums<A, K> (&sum)[1]) {
#pragma unroll 4
    for (int64_t j = rows.first; j < rows.last; j += rows.step) add_term(sum[0], f(rows.term(j), rows.row(j)));
  }
};
template <int W, template <int, bool> class Pack>
struct Packs {
  static constexpr bool of_columns = std::is_same_v<Pack<W, true>, PackOfColumns<W, true>>;
  static constexpr int size = W, outputs = of_columns ? W : 1;
  template <class F, class A, int K>
  __device__ static void add(const F& f, const RowsOfThread& rows, bool aligned, Sums<A, K> (&sum)[W]) {
    const auto add_packs = [&]<bool Aligned>(std::bool_constant<Aligned>) {
      in_batches<Aligned ? 4 : 1>(
          rows.first, rows.last, rows.step,
          [&](int64_t j) { return f.read(Pack<W, Aligned>(), rows.term(j) * W, rows.row(j) * (of_columns ? 1 : W)); },
          [&](int64_t, const auto& loaded) {
#pragma unroll
            for (int j = 0; j < W; ++j) add_term(sum[j], f.term(loaded, j));
          });
    };
    aligned ? add_packs(std::true_type()) : add_packs(std::false_type());
  }
};

// The sums of chunks: K arrays of `count` numbers, read as a formula's values. Volatile reads
// bypass this block's cache, because other blocks wrote the sums.
template <class A, int K>
struct LoadPartials {
  const volatile A* first;
  int64_t count;
  __device__ Values<A, K> operator()(int64_t i) const {
    Values<A, K> value;
    for (int k = 0; k < K; ++k) value[k] = first[k * count + i];
    return value;
  }
};
struct SumsOfChunks {
  static constexpr int size = 1, outputs = 1;
  template <class F, class A, int K>
  __device__ static void add(const F& f, const RowsOfThread& rows, bool, Sums<A, K> (&sum)[1]) {
    in_batches<8>(
        rows.first, rows.last, rows.step, [&](int64_t j) { return f(rows.term(j)); },
        [&](int64_t, const auto& value) { add_term(sum[0], value); });
  }
};

// Sums rows [first, last) for each output of a tile; thread t returns the sum of output t.
template <class Step, class A, int K, class F, int Room>
__device__ Sums<A, K> sum_of_tile(const Tiling& tiling, int64_t columns, int64_t first, int64_t last, const F& f,
                                  bool aligned, A (&partial)[K][Room]) {
  const ThreadRole role(tiling, static_cast<int>(threadIdx.x));
  const int64_t column = columns * tiling.width + role.column;
  Sums<A, K> sum[Step::size];
  if (column < tiling.outputs()) {
    const int64_t o = tiling.outer_of(column), i = column - o * tiling.inner;
    Step::add(f, {first + role.start, last, role.step, o * tiling.n, tiling.inner, i}, aligned, sum);
  }
  for (int j = 1; j < Step::size && Step::outputs == 1; ++j)
    for (int k = 0; k < K; ++k) sum[0].value[k] += sum[j].value[k];
  const auto each = [&](const auto& f) {
#pragma unroll
    for (int j = 0; j < Step::outputs; ++j)
      for (int k = 0; k < K; ++k) f(j, k);
  };
  // Adds the sums of threads that share a warp and an output, then those of the warps.
  for (int flip = role.flip; flip < role.flip_end; flip *= 2)
    each([&](int j, int k) { sum[j].value[k] += __shfl_xor_sync(~0u, sum[j].value[k], flip); });
  const int outputs = tiling.width * Step::outputs, index = role.partial_index * outputs + role.column * Step::outputs;
  if (role.writes) each([&](int j, int k) { partial[k][index + j] = sum[j].value[k]; });
  __syncthreads();
  Sums<A, K> total;
  const int mine = static_cast<int>(threadIdx.x);
  if (mine < outputs)
    for (int k = 0; k < K; ++k)
      for (int p = 0; p < role.partial_count; ++p) total.value[k] += partial[k][p * outputs + mine];
  return total;
}

// Threads per tile that have written a chunk sum; 0 between launches, which run in stream order.
__device__ inline unsigned* arrived() {
  static unsigned tile_counters[max_split_tiles];
  return tile_counters;
}

// `sums`: K arrays for the sums of chunks, if there are several. The block that writes a tile's last
// chunk sum adds all of them in order, so the result does not depend on which block it is.
template <class Step, class F, class Out, class A>
__global__ void __launch_bounds__(loop_threads)
    reduce_kernel(const Tiling tiling, bool aligned, const F f, const Out out, A* sums) {
  constexpr int K = detail::Terms<decltype(f(int64_t{0}, int64_t{0}))>::count;
  using Partial = PartialSums<Step::outputs, A, K>;
  Partial& partial = shared_memory<Partial>();
  if (threadIdx.x == 0) partial.last = false;
  const int64_t chunks = tiling.chunks, tiles = tiling.tiles_of_chunk() * chunks;
  const Tiling of_chunks = {tiling.outer, chunks, tiling.inner * Step::outputs, tiling.width * Step::outputs, 1,
                            chunks};
  const int64_t outputs = of_chunks.outputs(), count = outputs * chunks;
  wait_for_earlier();
  allow_next();
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t columns = chunks == 1 ? tile : tile / chunks, chunk = tile - columns * chunks;
    const int64_t first = chunk * tiling.length;
    const int64_t last = first + tiling.length < tiling.n ? first + tiling.length : tiling.n;
    const int64_t mine = columns * of_chunks.width + threadIdx.x;
    const bool in_tile = threadIdx.x < static_cast<unsigned>(of_chunks.width), has_output = in_tile && mine < outputs;
    Sums<A, K> total = sum_of_tile<Step>(tiling, columns, first, last, f, aligned, partial.value);
    if (chunks > 1) {
      const int64_t o = of_chunks.outer_of(mine), i = mine - o * of_chunks.inner;
      if (has_output)
        for (int k = 0; k < K; ++k) sums[k * count + (o * chunks + chunk) * of_chunks.inner + i] = total.value[k];
      __threadfence();
      const unsigned others = static_cast<unsigned>(chunks) * static_cast<unsigned>(of_chunks.width) - 1;
      if (in_tile && atomicInc(arrived() + columns, others) == others) partial.last = true;
      __syncthreads();
      if (!partial.last) continue;
      __threadfence();
      const LoadPartials<A, K> load_partials{sums, count};
      total = sum_of_tile<SumsOfChunks>(of_chunks, columns, 0, chunks, load_partials, true, partial.value);
      if (threadIdx.x == 0) partial.last = false;
    }
    if (has_output)
      for (int k = 0; k < K; ++k) detail::store(detail::destination(out, k), mine, total.value[k]);
    __syncthreads();  // the next tile writes `partial`
  }
}

template <class Step, class F, class Out>
void launch_reduce(const Tiling& tiling, bool aligned, const F& f, Out out) {
  using Term = detail::Terms<decltype(f(int64_t{0}, int64_t{0}))>;
  using A = typename Term::type;
  const int64_t sums = tiling.chunks > 1 ? Term::count * tiling.outputs() * Step::outputs * tiling.chunks : 0;
  const Workspace workspace(sums * static_cast<int64_t>(sizeof(A)));
  const Launch all("reduce", blocks_for(tiling.tiles_of_chunk() * tiling.chunks), loop_threads,
                   sizeof(PartialSums<Step::outputs, A, Term::count>));
#if defined(__CUDACC__)
  launch(all, reduce_kernel<Step, F, Out, A>, tiling, aligned, f, out, static_cast<A*>(workspace.data()));
#else
  try {
    launch(all, reduce_kernel<Step, F, Out, A>, tiling, aligned, f, out, static_cast<A*>(workspace.data()));
  } catch (...) {  // in the emulation; clears the counters for the next launch (on a GPU a fault is fatal)
    std::fill_n(arrived(), max_split_tiles, 0u);
    throw;
  }
#endif
}

template <class F, class Out>
void reduce(int64_t outer, int64_t n, int64_t inner, const F& f, Out out) {
  if (outer == 0 || inner == 0) return;
  if constexpr (requires { F::pack; }) {
    constexpr int64_t W = F::pack, min_rows = 64;
    const bool aligned = f.all_of([](const auto* array) { return is_aligned(array); });
    if (inner == 1 && n % W == 0 && n >= min_rows * W)
      return launch_reduce<Packs<W, PackOfRows>>(Tiling::of(outer, n / W, 1, loop_threads, 1, max_split_tiles), aligned,
                                                 f, out);
    // Fewer blocks: packs of sums take many registers, and each block adds work for the last one.
    if (inner % W == 0 && inner >= min_rows && n >= min_rows)
      return launch_reduce<Packs<W, PackOfColumns>>(
          Tiling::of(outer, n, inner / W, std::min<int>(loop_threads / W, 32), packs_of_line, max_split_tiles / 2),
          aligned, f, out);
  }
  launch_reduce<Elements>(Tiling::of(outer, n, inner, loop_threads, 32, 2 * max_split_tiles), false, f, out);
}

}  // namespace orrery::cuda
