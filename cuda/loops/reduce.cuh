// Sums over one axis on a GPU.
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

inline constexpr int64_t most_cut_tiles = 512;  // maximum tiles of outputs whose sums are cut into chunks
inline constexpr int packs_of_line = 8;         // 128 bytes, read by consecutive threads

// Values of operands for a pack: [j] is the value for element j. PackOfColumns: W columns of row r.
template <int W, class T>
struct PackRead {
  WholePack<T, W> whole;
  __device__ Arithmetic<T> operator[](int j) const { return detail::load(std::bit_cast<Pack<T, W>>(whole).value, j); }
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
template <int W, bool InQuads>
struct PackOfColumns {
  template <class T>
  __device__ PackRead<W, T> elements(const T* p) const {
    return {read_pack<InQuads, W>(p)};
  }
  template <class T>
  __device__ SameForAll<Arithmetic<T>> number(const T* all, int64_t r) const {
    return {detail::load(all, r)};
  }
  template <class T>
  __device__ PackRead<W, T> column(const T* all, int64_t c) const {
    return elements(all + c);
  }
  __device__ SameForAll<int64_t> index(int64_t r) const { return {r}; }
};
// A pack of W consecutive rows, one element each.
template <int W, bool InQuads>
struct PackOfRows {
  template <class T>
  __device__ PackRead<W, T> elements(const T* p) const {
    return {read_pack<InQuads, W>(p)};
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

  // At least `neighbours` threads read adjacent outputs; longer sums are shared by more threads.
  // Sums are cut into chunks only if the outputs alone would leave most of the GPU idle.
  static Tiling of(int64_t outer, int64_t n, int64_t inner, int widest, int neighbours, int64_t enough_blocks) {
    constexpr int64_t least_rows_of_thread = 4;
    int narrowest = 1;
    while (narrowest < neighbours && narrowest < inner) narrowest *= 2;
    int width = widest;
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

// A thread adds the terms start, start + step, ... of its column, then folds with the lanes that
// differ in bits `flip` to below `end_of_flips`. One of them (`speaks`) writes partial sum `part`.
struct Seat {
  int column, start, step, flip, end_of_flips, part, parts;
  bool speaks;

  __device__ Seat(const Tiling& tiling, int thread) {
    const int width = tiling.width;
    step = loop_threads / width;
    if (tiling.inner == 1) {  // consecutive threads add adjacent terms
      column = thread / step, start = thread % step;
      flip = 1, end_of_flips = step < 32 ? step : 32;
      part = start / 32, parts = (step + 31) / 32;
      speaks = start % 32 == 0;
    } else {  // consecutive threads add to adjacent outputs
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
template <int W, class A, int K>
struct PartialSums {
  A value[K][W * loop_threads];
  bool last;  // true if this block wrote the tile's last chunk sum
};
template <class Value, class A, int K>
__device__ void add_term(Sums<A, K>& sum, const Value& value) {
  for (int k = 0; k < K; ++k) sum.value[k] += detail::Terms<Value>::get(value, k);
}

// The rows first, first + step, ... below last of an output, after `before` rows of other outputs.
struct RowsOfThread {
  int64_t first, last, step, before, inner, i;
  __device__ int64_t row(int64_t j) const { return before + j; }
  __device__ int64_t term(int64_t j) const { return row(j) * inner + i; }
};

// A thread's step: `size` terms of `outputs` outputs. `add` adds terms of its rows to sum[size].
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
  __device__ static void add(const F& f, const RowsOfThread& rows, bool in_quads, Sums<A, K> (&sum)[W]) {
    const auto add_packs = [&]<bool InQuads>(std::bool_constant<InQuads>) {
      in_batches<InQuads ? 4 : 1>(
          rows.first, rows.last, rows.step,
          [&](int64_t j) { return f.read(Pack<W, InQuads>(), rows.term(j) * W, rows.row(j) * (of_columns ? 1 : W)); },
          [&](int64_t, const auto& read) {
#pragma unroll
            for (int j = 0; j < W; ++j) add_term(sum[j], f.term(read, j));
          });
    };
    in_quads ? add_packs(std::true_type()) : add_packs(std::false_type());
  }
};

// The sums of chunks: K arrays of `count` numbers, read as a formula's values. Volatile reads
// bypass this block's cache, because other blocks wrote the sums.
template <class A, int K>
struct ReadPartials {
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
                                  bool in_quads, A (&partial)[K][Room]) {
  const Seat seat(tiling, static_cast<int>(threadIdx.x));
  const int64_t column = columns * tiling.width + seat.column;
  Sums<A, K> sum[Step::size];
  if (column < tiling.outputs()) {
    const int64_t o = tiling.outer_of(column), i = column - o * tiling.inner;
    Step::add(f, {first + seat.start, last, seat.step, o * tiling.n, tiling.inner, i}, in_quads, sum);
  }
  for (int j = 1; j < Step::size && Step::outputs == 1; ++j)
    for (int k = 0; k < K; ++k) sum[0].value[k] += sum[j].value[k];
  const auto each = [&](const auto& f) {
#pragma unroll
    for (int j = 0; j < Step::outputs; ++j)
      for (int k = 0; k < K; ++k) f(j, k);
  };
  // Folds threads that share a warp and an output, then the warps.
  for (int flip = seat.flip; flip < seat.end_of_flips; flip *= 2)
    each([&](int j, int k) { sum[j].value[k] += __shfl_xor_sync(~0u, sum[j].value[k], flip); });
  const int outputs = tiling.width * Step::outputs, place = seat.part * outputs + seat.column * Step::outputs;
  if (seat.speaks) each([&](int j, int k) { partial[k][place + j] = sum[j].value[k]; });
  __syncthreads();
  Sums<A, K> total;
  const int mine = static_cast<int>(threadIdx.x);
  if (mine < outputs)
    for (int k = 0; k < K; ++k)
      for (int p = 0; p < seat.parts; ++p) total.value[k] += partial[k][p * outputs + mine];
  return total;
}

// Threads per tile that have written a chunk sum; 0 between launches, which run in stream order.
__device__ inline unsigned* arrived() {
  static unsigned of_tile[most_cut_tiles];
  return of_tile;
}

// `sums`: K arrays for the sums of chunks, if there are several. The block that writes a tile's
// last one adds all in order, so the result does not depend on which block it is.
template <class Step, class F, class Out, class A>
__global__ void __launch_bounds__(loop_threads)
    reduce_kernel(const Tiling tiling, bool in_quads, const F f, const Out out, A* sums) {
  constexpr int K = detail::Terms<decltype(f(int64_t{0}, int64_t{0}))>::count;
  using Partial = PartialSums<Step::outputs, A, K>;
  Partial& partial = shared_memory<Partial>();
  if (threadIdx.x == 0) partial.last = false;
  const int64_t chunks = tiling.chunks, tiles = tiling.tiles_of_chunk() * chunks;
  const Tiling of_chunks = {tiling.outer, chunks, tiling.inner * Step::outputs, tiling.width * Step::outputs, 1,
                            chunks};
  const int64_t outputs = of_chunks.outputs(), count = outputs * chunks;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t columns = chunks == 1 ? tile : tile / chunks, chunk = tile - columns * chunks;
    const int64_t first = chunk * tiling.length;
    const int64_t last = first + tiling.length < tiling.n ? first + tiling.length : tiling.n;
    const int64_t mine = columns * of_chunks.width + threadIdx.x;
    const bool in_tile = threadIdx.x < static_cast<unsigned>(of_chunks.width), has_output = in_tile && mine < outputs;
    Sums<A, K> total = sum_of_tile<Step>(tiling, columns, first, last, f, in_quads, partial.value);
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
      const ReadPartials<A, K> read{sums, count};
      total = sum_of_tile<SumsOfChunks>(of_chunks, columns, 0, chunks, read, true, partial.value);
      if (threadIdx.x == 0) partial.last = false;
    }
    if (has_output)
      for (int k = 0; k < K; ++k) detail::store(detail::destination(out, k), mine, total.value[k]);
    __syncthreads();  // the next tile writes `partial`
  }
}

template <class Step, class F, class Out>
void launch_reduce(const Tiling& tiling, bool in_quads, const F& f, Out out) {
  using Term = detail::Terms<decltype(f(int64_t{0}, int64_t{0}))>;
  using A = typename Term::type;
  const int64_t sums = tiling.chunks > 1 ? Term::count * tiling.outputs() * Step::outputs * tiling.chunks : 0;
  const Workspace workspace(sums * static_cast<int64_t>(sizeof(A)));
  const Launch all("reduce", blocks_for(tiling.tiles_of_chunk() * tiling.chunks), loop_threads,
                   sizeof(PartialSums<Step::outputs, A, Term::count>));
#if defined(__CUDACC__)
  launch(all, reduce_kernel<Step, F, Out, A>, tiling, in_quads, f, out, static_cast<A*>(workspace.data()));
#else
  try {
    launch(all, reduce_kernel<Step, F, Out, A>, tiling, in_quads, f, out, static_cast<A*>(workspace.data()));
  } catch (...) {  // on a GPU a fault is fatal
    std::fill_n(arrived(), most_cut_tiles, 0u);
    throw;
  }
#endif
}

template <class F, class Out>
void reduce(int64_t outer, int64_t n, int64_t inner, const F& f, Out out) {
  if (outer == 0 || inner == 0) return;
  if constexpr (requires { F::pack; }) {
    constexpr int64_t W = F::pack, least = 64;
    const bool aligned = f.all_of([](const auto* array) { return in_quads(array); });
    if (inner == 1 && n % W == 0 && n >= least * W)
      return launch_reduce<Packs<W, PackOfRows>>(Tiling::of(outer, n / W, 1, loop_threads, 1, most_cut_tiles), aligned,
                                                 f, out);
    // Fewer blocks: packs of sums take many registers, and each block adds work for the last one.
    if (inner % W == 0 && inner >= least && n >= least)
      return launch_reduce<Packs<W, PackOfColumns>>(
          Tiling::of(outer, n, inner / W, std::min<int>(loop_threads / W, 32), packs_of_line, most_cut_tiles / 2),
          aligned, f, out);
  }
  launch_reduce<Elements>(Tiling::of(outer, n, inner, loop_threads, 32, 2 * most_cut_tiles), false, f, out);
}

}  // namespace orrery::cuda
