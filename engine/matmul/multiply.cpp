// Products on a CPU, divided into a grid of tiles of C. One core computes a tile, with kernels of
// this library or, as a reference, of OpenBLAS. Products on a GPU are in cuda/matmul/matmul.h.
#include "engine/matmul/matmul.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <string>
#include <type_traits>

#include "engine/matmul/tile.h"
#include "engine/system/parallel.h"
#include "engine/system/version.h"
#include "engine/tensor/flops.h"
#include "engine/tensor/storage.h"
#include "engine/types/check.h"

#if defined(ORRERY_CUDA) || defined(EMULATE_CUDA)
#define ORRERY_HAS_CUDA
#include "cuda/matmul/matmul.h"
#endif

namespace orrery {
namespace {

using namespace detail::matmul;

// ---- kernels

const Kernels avx512_bf16 = {"avx512_bf16", avx512.f32, avx512.f64, bf16_pairs};

const Kernels& fastest_kernels() {
  if (processor_multiplies_bf16_fast()) return avx512_bf16;
  if (processor_has_avx512()) return avx512;
  return processor_has_avx2() ? avx2 : openblas;
}
std::atomic<const Kernels*>& chosen() {
  static std::atomic<const Kernels*> kernels = &fastest_kernels();
  return kernels;
}

// Number of bf16 terms of each f32 element in products on a GPU; 0: elements are not split.
std::atomic<int> bf16_terms = 0;

bool own_kernels() { return chosen().load() != &openblas; }

template <class T>
const TileKernel<Arithmetic<T>, T>& tile_kernel() {
  if constexpr (std::is_same_v<T, float>)
    return chosen().load()->f32;
  else if constexpr (std::is_same_v<T, double>)
    return chosen().load()->f64;
  else
    return chosen().load()->bf16;
}

// ---- tiles

// Returns the length of each of `tiles` equal tiles of n, a multiple of the kernels' `step`.
int64_t tile_size(int64_t n, int64_t tiles, int64_t step) {
  return std::min(n, ((n + tiles - 1) / tiles + step - 1) / step * step);
}

struct Grid {            // the tiles of one output
  int64_t m, n;          // sizes of a tile
  int64_t across, down;  // number of tiles side by side, and one below the other
};

// Returns the grid that finishes first by a cost model: two vector multiplications a cycle, and a
// cycle per element of A and B that a tile packs, B anew every rows_of_packed_b rows. Large tiles
// are best, since each packs its own factors. Sharing work among cores costs some 10,000 cycles.
template <class T>
Grid choose_tiles(const Product& p, int64_t columns, int64_t cores) {
  constexpr int64_t bytes = sizeof(Arithmetic<T>);
  Grid best = {};
  int64_t least_cycles = std::numeric_limits<int64_t>::max();
  const auto consider = [&](int64_t down, int64_t across) {
    const int64_t m = tile_size(p.m, down, 8), n = tile_size(columns, across, 64 / bytes);
    const Grid grid = {m, n, (columns + n - 1) / n, (p.m + m - 1) / m};
    const int64_t tiles = p.batch * grid.across * grid.down;
    const int64_t multiplications = m * n * p.k * bytes / 128;
    const int64_t packed = (m + n * ((m + rows_of_packed_b - 1) / rows_of_packed_b)) * p.k;
    const int64_t shared = tiles > 1 ? 10000 + 500 * tiles : 0;
    const int64_t cycles = (tiles + cores - 1) / cores * (multiplications + packed) + shared;
    if (cycles < least_cycles) least_cycles = cycles, best = grid;
  };
  const auto consider_all = [&](int64_t tiles) {
    for (int64_t down = 1; down <= tiles; ++down)
      if (tiles % down == 0) consider(down, tiles / down);
  };
  for (int64_t tiles = 1; tiles < cores; tiles *= 2) consider_all(tiles);
  consider_all(cores);
  consider_all(2 * cores);
  return best;
}

template <class C>
struct Output {  // one output: a matrix of C
  C* c;
  int64_t first_column, columns;
  Grid grid;
  int64_t tiles;
};

template <class T, class C>
class Multiplication {
  using Sum = Arithmetic<T>;
  static constexpr bool rounds = !std::is_same_v<C, Sum>;  // sums then need a buffer

 public:
  Multiplication(const Product& p, const T* a, const T* b, std::initializer_list<C*> c, Epilogue<C> epilogue)
      : p_(p), a_(a), b_(b), epilogue_(epilogue), count_(static_cast<int>(c.size())) {
    // OpenBLAS's bits depend on the tiles, which then must not depend on the number of threads.
    const int64_t cores = own_kernels() ? thread_count() : p.m * p.n * p.k >> 30 ? 16 : 4;
    int64_t column = 0;
    for (int i = 0; i < count_; ++i) {
      const int64_t columns = p.output_columns[0] ? p.output_columns[static_cast<size_t>(i)] : p.n;
      const Grid grid = columns ? choose_tiles<T>(p, columns, cores) : Grid{};
      outputs_[i] = {c.begin()[i], column, columns, grid, grid.across * grid.down};
      column += columns, tiles_ += outputs_[i].tiles;
    }
  }
  void run() const {
    const TileKernel<Sum, T>& kernel = tile_kernel<T>();
    int64_t m = 0, n = 0;
    for (int i = 0; i < count_; ++i) m = std::max(m, outputs_[i].grid.m), n = std::max(n, outputs_[i].grid.n);
    const int64_t sums = rounds ? (m * n + 15) / 16 * 16 : 0;  // whole cache lines
    const int64_t workspace_bytes = (sums + kernel.workspace(m, n, p_.k)) * int64_t{sizeof(Sum)};
    parallel_for(p_.batch * tiles_, 1, [&](int64_t begin, int64_t end) {
      Buffer workspace(Device::cpu, workspace_bytes);
      for (int64_t u = begin; u < end; ++u) {
        int64_t tile = u % tiles_;
        int i = 0;
        while (tile >= outputs_[i].tiles) tile -= outputs_[i++].tiles;
        const Grid& grid = outputs_[i].grid;
        Sum* const buffer = reinterpret_cast<Sum*>(workspace.data());
        run_tile(kernel, i, u / tiles_, tile % grid.down * grid.m, tile / grid.down * grid.n, buffer, buffer + sums);
      }
    });
  }

 private:
  struct Finish {  // epilogue of a tile at (row, column) of an output; rows count over the batch
    const Epilogue<C>& epilogue;
    const Output<C>& output;
    int index;
    int64_t row, column;
    Sum* sums;  // sums of the tile
    int64_t stride;
    bool accumulate;  // if the tile did not
    static void block(const void* object, int64_t first_row, int64_t rows, int64_t first_column, int64_t columns) {
      const Finish& my = *static_cast<const Finish*>(object);
      const int64_t column = my.column + first_column;
      for (int64_t i = first_row; i < first_row + rows; ++i) {
        const int64_t r = my.row + i, element = r * my.output.columns + column;
        Sum* const sums = my.sums + i * my.stride + first_column;
        C* const c = my.output.c + element;
        if (my.accumulate) add(sums, c, columns);
        if (my.epilogue.bias) add(sums, my.epilogue.bias + my.output.first_column + column, columns);
        if (my.epilogue.residual) add(sums, my.epilogue.residual + element, columns);
        if constexpr (rounds)
          for (int64_t e = 0; e < columns; ++e) c[e] = static_cast<C>(sums[e]);
        if (my.epilogue.function) my.epilogue.function->row(my.index, r, column, columns, c);
      }
    }
    static void add(Sum* sums, const C* x, int64_t n) {
      for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<Sum>(x[i]);
    }
  };

  void run_tile(const TileKernel<Sum, T>& kernel, int i, int64_t batch, int64_t m0, int64_t n0, Sum* buffer,
                Sum* workspace) const {
    const Output<C>& output = outputs_[i];
    const int64_t column = output.first_column + n0, row = batch * p_.m + m0;
    Sum* sums = buffer;
    if constexpr (!rounds) sums = output.c + row * output.columns + n0;
    const int64_t stride = rounds ? output.grid.n : output.columns;
    const int64_t rows = std::min(output.grid.m, p_.m - m0), columns = std::min(output.grid.n, output.columns - n0);
    const Finish finish = {epilogue_, output, i, row, n0, sums, stride, p_.accumulate && rounds};
    const bool any = rounds || epilogue_.function || epilogue_.bias || epilogue_.residual;
    const Completion completion = {&finish, any ? Finish::block : nullptr};
    if (p_.k == 0) {  // the factors have no elements to point to
      for (int64_t r = 0; r < rows && (rounds || !p_.accumulate); ++r) std::fill_n(sums + r * stride, columns, Sum());
      if (any) Finish::block(&finish, 0, rows, 0, columns);
      return;
    }
    const int64_t lda = p_.transpose_a ? p_.m : p_.k, ldb = p_.transpose_b ? p_.k : p_.n;
    const T* const a = a_ + (p_.share_a ? 0 : batch * p_.m * p_.k) + (p_.transpose_a ? m0 : m0 * lda);
    const T* const b = b_ + (p_.share_b ? 0 : batch * p_.k * p_.n) + (p_.transpose_b ? column * ldb : column);
    const Tile<Sum, T> tile = {rows, columns, p_.k, {a, lda, p_.transpose_a}, {b, ldb, p_.transpose_b}, sums, stride,
                               p_.accumulate && !rounds};
    kernel.multiply(tile, completion, workspace);
  }

  Product p_;
  const T *a_, *b_;
  Epilogue<C> epilogue_;
  int count_;
  Output<C> outputs_[4];
  int64_t tiles_ = 0;
};

template <class T, class C>
[[noreturn]] void fail_without_kernels() {
  fail("matmul: the function of this epilogue has no GPU version for ", name(dtype_of<T>), " to ", name(dtype_of<C>),
       " (EpilogueFunction::on_gpu); apply it to the result instead");
}

#if defined(ORRERY_HAS_CUDA)
template <class T, class C>
void multiply_on_gpu(const Product& p, const std::array<const T*, 4>& a, const T* b, std::initializer_list<C*> c,
                     const Epilogue<C>& epilogue) {
  cuda::Matmul<T, C> product{.m = p.m,
                             .n = p.n,
                             .k = p.k,
                             .batch = p.batch,
                             .a = {a[0], p.transpose_a ? p.m : p.k, p.share_a ? 0 : p.m * p.k, p.transpose_a},
                             .b = {b, p.transpose_b ? p.k : p.n, p.share_b ? 0 : p.k * p.n, p.transpose_b},
                             .c = {},
                             .accumulate = p.accumulate,
                             .bias = epilogue.bias,
                             .residual = epilogue.residual};
  if constexpr (!std::is_same_v<T, C>)
    product.row_sums = epilogue.row_sums, product.accumulate_row_sums = epilogue.accumulate_row_sums;
  product.may_wait = epilogue.may_wait;
  if (p.a_columns[0])
    for (size_t i = 0; i < a.size(); ++i) product.a_parts[i] = {a[i], p.a_columns[i], p.a_columns[i]};
  for (size_t i = 0; i < c.size(); ++i) product.c[i] = {c.begin()[i], p.output_columns[0] ? p.output_columns[i] : p.n};
  if (epilogue.function) {
    if constexpr (std::is_same_v<T, C>) return epilogue.function->on_gpu(product, bf16_terms);
    fail_without_kernels<T, C>();
  }
  if constexpr (std::is_same_v<T, float>)
    cuda::multiply(product, bf16_terms);
  else
    cuda::multiply(product);
}
std::shared_ptr<void> copies_on_gpu() { return std::make_shared<cuda::AlignedCopies>(); }
#else
std::shared_ptr<void> copies_on_gpu() { return nullptr; }
template <class T, class C>
[[noreturn]] void multiply_on_gpu(const Product&, const std::array<const T*, 4>&, const T*, std::initializer_list<C*>,
                                  const Epilogue<C>&) {
  fail("matmul: built without CUDA; configure with -DORRERY_CUDA=ON");
}
#endif

void check_outputs(const Product& p, int64_t count) {
  check(count >= 1 && count <= static_cast<int64_t>(p.output_columns.size()), "matmul: ", count,
        " outputs; the number must be from 1 to ", p.output_columns.size());
  int64_t columns = 0;
  for (int64_t i = 0; i < count; ++i) columns += p.output_columns[0] ? p.output_columns[static_cast<size_t>(i)] : p.n;
  check(columns == p.n, "matmul: the columns of the outputs add up to ", columns, "; they must add up to n, ", p.n);
}

}  // namespace

template <class C>
void EpilogueFunction<C>::on_gpu(const cuda::Matmul<C, C>&, int) const {
  fail_without_kernels<C, C>();
}
template class EpilogueFunction<float>;
template class EpilogueFunction<double>;
template class EpilogueFunction<bf16>;

template <class T, class C>
void multiply(Device device, const Product& p, const std::array<const T*, 4>& a, const T* b,
              std::initializer_list<C*> c, Epilogue<C> epilogue) {
  check_outputs(p, static_cast<int64_t>(c.size()));
  check(!epilogue.residual || c.size() == 1, "matmul: a residual needs one output, not ", c.size());
  constexpr bool of_weights = std::is_same_v<T, bf16> && std::is_same_v<C, float>;
  const bool may_sum_rows = of_weights && device == Device::cuda && p.transpose_a && !p.transpose_b;
  check(!epilogue.row_sums || (may_sum_rows && p.batch == 1 && c.size() == 1),
        "matmul: sums of A's rows are supported only for a product A^T B of bf16 into one f32 matrix on a GPU");
  if (p.a_columns[0]) {
    check(std::is_same_v<T, bf16> && device == Device::cuda && p.batch == 1,
          "matmul: A of several matrices is supported only for one product of bf16 on a GPU");
    int64_t columns = 0;
    for (const int64_t n : p.a_columns) columns += n;
    check(columns == (p.transpose_a ? p.m : p.k), "matmul: the columns of A's matrices add up to ", columns,
          "; they must add up to ", p.transpose_a ? "m, " : "k, ", p.transpose_a ? p.m : p.k);
  }
  check(std::max({p.m, p.n, p.k}) < int64_t{1} << 31, "matmul: sizes ", p.m, ", ", p.n, ", ", p.k,
        " must be below 2^31");
  count_flops(2.0 * static_cast<double>(p.m * p.n) * static_cast<double>(p.k * p.batch));
  if (p.m * p.n * p.batch == 0) return;
  if (device == Device::cuda) return multiply_on_gpu(p, a, b, c, epilogue);
  Multiplication<T, C>(p, a[0], b, c, epilogue).run();
}
template <class T>
using Matrices = std::array<const T*, 4>;
template void multiply(Device, const Product&, const Matrices<float>&, const float*, std::initializer_list<float*>,
                       Epilogue<float>);
template void multiply(Device, const Product&, const Matrices<double>&, const double*, std::initializer_list<double*>,
                       Epilogue<double>);
template void multiply(Device, const Product&, const Matrices<bf16>&, const bf16*, std::initializer_list<bf16*>,
                       Epilogue<bf16>);
template void multiply(Device, const Product&, const Matrices<bf16>&, const bf16*, std::initializer_list<float*>,
                       Epilogue<float>);

UnchangedOperands::UnchangedOperands() : copies_(copies_on_gpu()) {}

void set_product_precision(ProductPrecision precision, int terms) {
  check(terms == 2 || terms == 3, "matmul: precision high needs 2 or 3 bf16 terms, not ", terms);
  bf16_terms = precision == ProductPrecision::highest ? 0 : precision == ProductPrecision::high ? terms : 1;
}
ProductPrecision parse_product_precision(const std::string& name) {
  if (name == "highest") return ProductPrecision::highest;
  if (name == "high") return ProductPrecision::high;
  check(name == "medium", "matmul: precision '", name, "' is unknown; use highest, high or medium");
  return ProductPrecision::medium;
}
ProductPrecision product_precision() {
  const int terms = bf16_terms;
  return terms == 0 ? ProductPrecision::highest : terms == 1 ? ProductPrecision::medium : ProductPrecision::high;
}

const char* product_kernels() { return chosen().load()->name; }

void use_product_kernels(std::string_view name) {
  if (name == "auto") {
    chosen() = &fastest_kernels();
    return;
  }
  for (const Kernels* kernels : {&avx512_bf16, &avx512, &avx2, &openblas}) {
    if (name != kernels->name) continue;
    const bool here = kernels == &openblas || (kernels == &avx2     ? processor_has_avx2()
                                               : kernels == &avx512 ? processor_has_avx512()
                                                                    : processor_has_avx512_bf16());
    check(here, "matmul: this processor lacks ", name, "; use ", fastest_kernels().name);
    chosen() = kernels;
    return;
  }
  fail("matmul: kernels '", name, "' are unknown; use auto, avx512_bf16, avx512, avx2 or openblas");
}

std::string blas_description() {
  return chosen().load() == &openblas
             ? openblas_description()
             : std::string("orrery's kernels for ") + product_kernels() + "; also available: " + openblas_description();
}

}  // namespace orrery
