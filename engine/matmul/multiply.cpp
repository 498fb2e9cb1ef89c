// Products, cut into a grid of tiles of C.  A tile is the work of one core: our own kernels on a processor with
// AVX-512, OpenBLAS on any other.  Products on a GPU are those of cuda/matmul.h.
#include "engine/matmul.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>

#include "engine/check.h"
#include "engine/matmul/tile.h"
#include "engine/parallel.h"
#include "engine/profile.h"
#include "engine/storage.h"
#include "engine/version.h"

#if defined(ORRERY_CUDA) || defined(EMULATE_CUDA)
#define ORRERY_HAS_CUDA
#include "cuda/matmul.h"
#endif

namespace orrery {
namespace {

using namespace detail::matmul;

// ---- kernels

std::atomic<const Kernels*>& chosen() {
  static std::atomic<const Kernels*> kernels = processor_has_avx512() ? &avx512 : &openblas;
  return kernels;
}

template <class T>
const TileKernel<T>& tile_kernel() {
  if constexpr (std::is_same_v<T, float>)
    return chosen().load()->f32;
  else
    return chosen().load()->f64;
}

// ---- tiles

// The length of `pieces` equal pieces of n, in multiples of what our kernels take at once.
int64_t tile_size(int64_t n, int64_t pieces, int64_t step) {
  return std::min(n, ((n + pieces - 1) / pieces + step - 1) / step * step);
}

struct Grid {            // of the tiles of one part of C
  int64_t m, n;          // sizes
  int64_t across, down;  // how many lie side by side, and one below the other
};

// Few, large tiles, because each packs its share of A and B anew.  Four along the longer axis first, so that two cores
// are always even: one operand is then packed once in all.  On 2 x 2 tiles the products of a small GPT ran 4 %
// (OpenBLAS: 10 %) slower than on 4 x 1, those of larger ones alike.  Then up to sixteen, while their sides stay above
// 512.
Grid choose_tiles(const Product& p, int64_t columns) {
  // A tile is worth at least two million multiplications.
  const int64_t wanted = std::clamp<int64_t>(p.m * columns * p.k >> 21, 1, 16) / p.batch;
  int64_t down = 1, across = 1;
  int64_t& along = p.m >= columns ? down : across;
  while (along < std::min<int64_t>(wanted, 4) && std::max(p.m, columns) / (2 * along) >= 32) along *= 2;
  while (down * across < wanted) {
    const int64_t m = p.m / down, n = columns / across;
    if (std::max(m, n) / 2 < 512) break;
    (m >= n ? down : across) *= 2;
  }
  const int64_t m = tile_size(p.m, down, 8), n = tile_size(columns, across, 48);
  return {m, n, (columns + n - 1) / n, (p.m + m - 1) / m};
}

template <class T>
struct Part {  // one of the matrices that C consists of
  T* c;
  int64_t first_column, columns;
  Grid grid;
  int64_t tiles;
};

template <class T>
class Multiplication {
 public:
  Multiplication(const Product& p, const T* a, const T* b, std::initializer_list<T*> c, Epilogue<T> epilogue)
      : p_(p), a_(a), b_(b), epilogue_(epilogue), count_(static_cast<int>(c.size())) {
    int64_t column = 0;
    for (int i = 0; i < count_; ++i) {
      const int64_t columns = p.part_columns[0] ? p.part_columns[static_cast<size_t>(i)] : p.n;
      const Grid grid = columns ? choose_tiles(p, columns) : Grid{};
      parts_[i] = {c.begin()[i], column, columns, grid, grid.across * grid.down};
      column += columns, tiles_ += parts_[i].tiles;
    }
  }
  void run() const {
    const TileKernel<T>& kernel = tile_kernel<T>();
    int64_t rows = 0;
    for (int i = 0; i < count_; ++i) rows = std::max(rows, parts_[i].grid.m);
    const int64_t workspace_bytes = kernel.workspace(rows, p_.k) * int64_t{sizeof(T)};
    parallel_for(p_.batch * tiles_, 1, [&](int64_t begin, int64_t end) {
      Buffer workspace(Device::cpu, workspace_bytes);
      for (int64_t u = begin; u < end; ++u) {
        int64_t tile = u % tiles_;
        int i = 0;
        while (tile >= parts_[i].tiles) tile -= parts_[i++].tiles;
        const Grid& grid = parts_[i].grid;
        run_tile(kernel, i, u / tiles_, tile % grid.down * grid.m, tile / grid.down * grid.n,
                 reinterpret_cast<T*>(workspace.data()));
      }
    });
  }

 private:
  struct Finish {  // the epilogue of a block of the tile at (row, column) of a part; rows count over the batch
    const Epilogue<T>& epilogue;
    const Part<T>& part;
    int index;
    int64_t row, column;
    static void block(const void* object, int64_t first_row, int64_t rows, int64_t first_column, int64_t columns) {
      const Finish& my = *static_cast<const Finish*>(object);
      const int64_t column = my.column + first_column;
      for (int64_t r = my.row + first_row; r < my.row + first_row + rows; ++r) {
        const int64_t at = r * my.part.columns + column;
        if (my.epilogue.bias) add(my.part.c + at, my.epilogue.bias + my.part.first_column + column, columns);
        if (my.epilogue.residual) add(my.part.c + at, my.epilogue.residual + at, columns);
        if (my.epilogue.row) my.epilogue.row(my.epilogue.object, my.index, r, column, columns, my.part.c + at);
      }
    }
    static void add(T* c, const T* x, int64_t n) {
      for (int64_t i = 0; i < n; ++i) c[i] += x[i];
    }
  };

  void run_tile(const TileKernel<T>& kernel, int i, int64_t batch, int64_t m0, int64_t n0, T* workspace) const {
    const Part<T>& part = parts_[i];
    const int64_t column = part.first_column + n0, row = batch * p_.m + m0;
    const int64_t lda = p_.transpose_a ? p_.m : p_.k, ldb = p_.transpose_b ? p_.k : p_.n;
    const T* const a = a_ + (p_.share_a ? 0 : batch * p_.m * p_.k) + (p_.transpose_a ? m0 : m0 * lda);
    const T* const b = b_ + (p_.share_b ? 0 : batch * p_.k * p_.n) + (p_.transpose_b ? column * ldb : column);
    const Tile<T> tile = {std::min(part.grid.m, p_.m - m0),
                          std::min(part.grid.n, part.columns - n0),
                          p_.k,
                          {a, lda, p_.transpose_a},
                          {b, ldb, p_.transpose_b},
                          part.c + row * part.columns + n0,
                          part.columns,
                          p_.accumulate};
    const Finish finish = {epilogue_, part, i, row, n0};
    const bool any = epilogue_.row || epilogue_.bias || epilogue_.residual;
    const Completion completion = {&finish, any ? Finish::block : nullptr};
    kernel.multiply(tile, completion, workspace);
  }

  Product p_;
  const T *a_, *b_;
  Epilogue<T> epilogue_;
  int count_;
  Part<T> parts_[4];
  int64_t tiles_ = 0;
};

#if defined(ORRERY_HAS_CUDA)
template <class T>
void multiply_on_card(const Product& p, const T* a, const T* b, std::initializer_list<T*> c,
                      const Epilogue<T>& epilogue) {
  cuda::Matmul<T> product{.m = p.m,
                          .n = p.n,
                          .k = p.k,
                          .batch = p.batch,
                          .a = {a, p.transpose_a ? p.m : p.k, p.share_a ? 0 : p.m * p.k, p.transpose_a},
                          .b = {b, p.transpose_b ? p.k : p.n, p.share_b ? 0 : p.k * p.n, p.transpose_b},
                          .c = {},
                          .accumulate = p.accumulate,
                          .bias = epilogue.bias,
                          .residual = epilogue.residual};
  for (size_t i = 0; i < c.size(); ++i) product.c[i] = {c.begin()[i], p.part_columns[0] ? p.part_columns[i] : p.n};
  cuda::multiply(product);
  for (size_t i = 0; epilogue.whole && i < c.size(); ++i)
    epilogue.whole(epilogue.object, static_cast<int>(i), p.batch * p.m, c.begin()[i]);
}
#else
template <class T>
[[noreturn]] void multiply_on_card(const Product&, const T*, const T*, std::initializer_list<T*>, const Epilogue<T>&) {
  fail("matmul: built without CUDA (configure with -DCUDA=ON)");
}
#endif

void check_outputs(const Product& p, int64_t count) {
  check(count >= 1 && count <= static_cast<int64_t>(p.part_columns.size()), "matmul: ", count, " outputs; 1 to ",
        p.part_columns.size(), " are possible");
  int64_t columns = 0;
  for (int64_t i = 0; i < count; ++i) columns += p.part_columns[0] ? p.part_columns[static_cast<size_t>(i)] : p.n;
  check(columns == p.n, "matmul: the columns of the outputs add up to ", columns, ", the product has ", p.n);
}

}  // namespace

template <class T>
void multiply(Device device, const Product& p, const T* a, const T* b, std::initializer_list<T*> c,
              Epilogue<T> epilogue) {
  check_outputs(p, static_cast<int64_t>(c.size()));
  check(!epilogue.residual || c.size() == 1, "matmul: a residual has the shape of one output, not of ", c.size());
  check(std::max({p.m, p.n, p.k}) < int64_t{1} << 31, "matmul: sizes ", p.m, ", ", p.n, ", ", p.k,
        " exceed the BLAS's 32-bit sizes");
  count_flops(2.0 * static_cast<double>(p.m * p.n) * static_cast<double>(p.k * p.batch));
  if (p.m * p.n * p.batch == 0) return;
  if (device == Device::cuda) return multiply_on_card(p, a, b, c, epilogue);
  Multiplication<T>(p, a, b, c, epilogue).run();
}
template void multiply(Device, const Product&, const float*, const float*, std::initializer_list<float*>,
                       Epilogue<float>);
template void multiply(Device, const Product&, const double*, const double*, std::initializer_list<double*>,
                       Epilogue<double>);

const char* product_kernels() { return chosen().load()->name; }

void use_product_kernels(const char* name) {
  const bool own = std::strcmp(name, avx512.name) == 0;
  check(own || std::strcmp(name, openblas.name) == 0, "matmul: no kernels '", name, "'; there are avx512 and openblas");
  check(!own || processor_has_avx512(), "matmul: this processor lacks avx512; use openblas");
  chosen() = own ? &avx512 : &openblas;
}

std::string blas_description() {
  return chosen().load() == &avx512 ? "own kernels for avx512; for other processors " + openblas_description()
                                    : openblas_description();
}

}  // namespace orrery
