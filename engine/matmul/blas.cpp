// Products over OpenBLAS, one thread each, inside parallel_for.  This is the only file that includes OpenBLAS.
#include <cblas.h>

#include <algorithm>

#include "engine/check.h"
#include "engine/matmul.h"
#include "engine/parallel.h"
#include "engine/profile.h"

namespace orrery {
namespace {

// OpenBLAS's bits depend on the shape it is handed and not on who calls, provided that it does not split the work
// itself.
const bool single_threaded = (openblas_set_num_threads(1), true);

void gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, const float* a, int lda, const float* b, int ldb,
          float beta, float* c, int ldc) {
  cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, 1, a, lda, b, ldb, beta, c, ldc);
}
void gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, const double* a, int lda, const double* b,
          int ldb, double beta, double* c, int ldc) {
  cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, 1, a, lda, b, ldb, beta, c, ldc);
}

// The length of `pieces` equal pieces of n, in multiples of 16.
int64_t tile_size(int64_t n, int64_t pieces) { return std::min(n, ((n + pieces - 1) / pieces + 15) / 16 * 16); }

struct Tile {            // of one part of C
  int64_t m, n;          // sizes
  int64_t across, down;  // how many lie side by side, and one below the other
};

// Few, large tiles, because each call packs its share of A and B anew.  Four along the longer axis first, so that two
// cores are always even: one operand is then packed once in all, and on 2 x 2 tiles the products of a small GPT run
// 10 % slower than on 4 x 1.  Then up to sixteen, while their sides stay above 512.
Tile choose_tile(const Product& p, int64_t columns) {
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
  const int64_t m = tile_size(p.m, down), n = tile_size(columns, across);
  return {m, n, (columns + n - 1) / n, (p.m + m - 1) / m};
}

template <class T>
struct Part {  // one of the matrices that C consists of
  T* c;
  int64_t first_column, columns;
  Tile tile;
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
      const Tile tile = choose_tile(p, columns);
      parts_[i] = {c.begin()[i], column, columns, tile, columns ? tile.across * tile.down : 0};
      column += columns, tiles_ += parts_[i].tiles;
    }
    check(column == p.n, "matmul: the columns of the outputs add up to ", column, ", the product has ", p.n);
  }
  void run() const {
    parallel_for(p_.batch * tiles_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t u = begin; u < end; ++u) {
        int64_t tile = u % tiles_;
        int i = 0;
        while (tile >= parts_[i].tiles) tile -= parts_[i++].tiles;
        run_tile(i, u / tiles_, tile % parts_[i].tile.down * parts_[i].tile.m,
                 tile / parts_[i].tile.down * parts_[i].tile.n);
      }
    });
  }

 private:
  void run_tile(int i, int64_t batch, int64_t m0, int64_t n0) const {
    const Part<T>& part = parts_[i];
    const int64_t rows = std::min(part.tile.m, p_.m - m0), columns = std::min(part.tile.n, part.columns - n0);
    const int64_t column = part.first_column + n0, lda = p_.transpose_a ? p_.m : p_.k,
                  ldb = p_.transpose_b ? p_.k : p_.n;
    const T* const a = a_ + (p_.share_a ? 0 : batch * p_.m * p_.k) + (p_.transpose_a ? m0 : m0 * lda);
    const T* const b = b_ + (p_.share_b ? 0 : batch * p_.k * p_.n) + (p_.transpose_b ? column * ldb : column);
    T* const c = part.c + (batch * p_.m + m0) * part.columns + n0;
    gemm(p_.transpose_a ? CblasTrans : CblasNoTrans, p_.transpose_b ? CblasTrans : CblasNoTrans, static_cast<int>(rows),
         static_cast<int>(columns), static_cast<int>(p_.k), a, static_cast<int>(lda), b, static_cast<int>(ldb),
         p_.accumulate ? T(1) : T(0), c, static_cast<int>(part.columns));
    if (!epilogue_.row) return;
    for (int64_t r = 0; r < rows; ++r)
      epilogue_.row(epilogue_.object, i, batch * p_.m + m0 + r, n0, columns, c + r * part.columns);
  }

  Product p_;
  const T *a_, *b_;
  Epilogue<T> epilogue_;
  int count_;
  Part<T> parts_[4];
  int64_t tiles_ = 0;
};

}  // namespace

template <class T>
void multiply(Device device, const Product& p, const T* a, const T* b, std::initializer_list<T*> c,
              Epilogue<T> epilogue) {
  check(device == Device::cpu, "matmul: runs on the CPU only in this version; move the operands with .to(Device::cpu)");
  check(c.size() >= 1 && c.size() <= p.part_columns.size(), "matmul: ", c.size(), " outputs; 1 to ",
        p.part_columns.size(), " are possible");
  check(std::max({p.m, p.n, p.k}) < int64_t{1} << 31, "matmul: sizes ", p.m, ", ", p.n, ", ", p.k,
        " exceed the BLAS's 32-bit sizes");
  count_flops(2.0 * static_cast<double>(p.m * p.n) * static_cast<double>(p.k * p.batch));
  if (p.m * p.n * p.batch == 0) return;
  Multiplication<T>(p, a, b, c, epilogue).run();
}
template void multiply(Device, const Product&, const float*, const float*, std::initializer_list<float*>,
                       Epilogue<float>);
template void multiply(Device, const Product&, const double*, const double*, std::initializer_list<double*>,
                       Epilogue<double>);

std::string blas_description() { return std::string(openblas_get_config()) + ", kernels " + openblas_get_corename(); }

}  // namespace orrery
