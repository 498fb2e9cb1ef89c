// Tiles by OpenBLAS, one thread each.  This is the only file that includes OpenBLAS.
#include <cblas.h>

#include <algorithm>
#include <limits>

#include "engine/matmul/tile.h"
#include "engine/types/check.h"

namespace orrery::detail::matmul {
namespace {

// OpenBLAS's bits depend on the shape only, not on the calling thread, if it does not split the
// work itself. Set here too: other builds may not call the function at the end of this file.
const bool single_threaded = (openblas_set_num_threads(1), true);

// Throws if size exceeds int, in which OpenBLAS counts: a conversion would change the value.
int blas_size(int64_t size) {
  check(size <= std::numeric_limits<int>::max(), "matmul: a matrix has ", size,
        " rows or columns; OpenBLAS supports at most ", std::numeric_limits<int>::max());
  return static_cast<int>(size);
}

void gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, const float* a, int lda, const float* b, int ldb,
          float beta, float* c, int ldc) {
  cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, 1, a, lda, b, ldb, beta, c, ldc);
}
void gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, const double* a, int lda, const double* b,
          int ldb, double beta, double* c, int ldc) {
  cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, 1, a, lda, b, ldb, beta, c, ldc);
}

// y += M x or M^T x, M (rows, columns) as stored.
void gemv(CBLAS_TRANSPOSE form, int rows, int columns, const float* m, int stride, const float* x, int step, float* y) {
  cblas_sgemv(CblasRowMajor, form, rows, columns, 1, m, stride, x, step, 1, y, 1);
}
void gemv(CBLAS_TRANSPOSE form, int rows, int columns, const double* m, int stride, const double* x, int step,
          double* y) {
  cblas_dgemv(CblasRowMajor, form, rows, columns, 1, m, stride, x, step, 1, y, 1);
}

// Multiplies a single row by gemv, because gemm would first copy all of B to pack it.
template <class T>
void multiply_row(const Tile<T>& t) {
  if (!t.accumulate) std::fill_n(t.c, t.n, T(0));
  const int n = blas_size(t.n), k = blas_size(t.k), step = t.a.transposed ? blas_size(t.a.stride) : 1;
  if (t.b.transposed)
    gemv(CblasNoTrans, n, k, t.b.data, blas_size(t.b.stride), t.a.data, step, t.c);
  else
    gemv(CblasTrans, k, n, t.b.data, blas_size(t.b.stride), t.a.data, step, t.c);
}

template <class T>
void multiply_matrices(const Tile<T>& t) {
  const auto form = [](const Operand<T>& x) { return x.transposed ? CblasTrans : CblasNoTrans; };
  gemm(form(t.a), form(t.b), blas_size(t.m), blas_size(t.n), blas_size(t.k), t.a.data, blas_size(t.a.stride), t.b.data,
       blas_size(t.b.stride), t.accumulate ? T(1) : T(0), t.c, blas_size(t.stride));
}

template <class T>
void multiply_tile(const Tile<T>& t, const Completion& completion, T*) {
  if (t.m == 1)
    multiply_row(t);
  else
    multiply_matrices(t);
  if (completion.block) completion.block(completion.object, 0, t.m, 0, t.n);
}

int64_t no_workspace(int64_t, int64_t, int64_t) { return 0; }

// Widens an operand to floats for OpenBLAS: rows as they are stored, without gaps.
Operand<float> widen(const Operand<bf16>& x, int64_t rows, int64_t columns, float* to) {
  const int64_t stored = x.transposed ? columns : rows, length = x.transposed ? rows : columns;
  for (int64_t r = 0; r < stored; ++r)
    for (int64_t i = 0; i < length; ++i) to[r * length + i] = static_cast<float>(x.data[r * x.stride + i]);
  return {to, length, x.transposed};
}
void multiply_widened(const Tile<float, bf16>& t, const Completion& completion, float* workspace) {
  const Operand<float> a = widen(t.a, t.m, t.k, workspace), b = widen(t.b, t.k, t.n, workspace + t.m * t.k);
  multiply_tile<float>({t.m, t.n, t.k, a, b, t.c, t.stride, t.accumulate}, completion, nullptr);
}
int64_t widened_elements(int64_t m, int64_t n, int64_t k) { return (m + n) * k; }

}  // namespace

constinit const Kernels openblas = {"openblas",
                                    {multiply_tile<float>, no_workspace},
                                    {multiply_tile<double>, no_workspace},
                                    {multiply_widened, widened_elements}};

std::string openblas_description() {
  return std::string(openblas_get_config()) + ", kernels " + openblas_get_corename();
}

}  // namespace orrery::detail::matmul

// OpenBLAS calls this when it is loaded; otherwise it reads the environment. It would start an
// unused thread per core, and end the process with SIGINT if the system refuses one.
extern "C" [[gnu::visibility("default")]] int openblas_num_threads_env() { return 1; }
