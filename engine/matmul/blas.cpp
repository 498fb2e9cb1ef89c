// Tiles by OpenBLAS, one thread each.  This is the only file that includes OpenBLAS.
#include <cblas.h>

#include "engine/matmul/tile.h"

namespace orrery::detail::matmul {
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

template <class T>
void multiply_tile(const Tile<T>& t, const Completion& completion, T*) {
  const auto form = [](const Operand<T>& x) { return x.transposed ? CblasTrans : CblasNoTrans; };
  gemm(form(t.a), form(t.b), static_cast<int>(t.m), static_cast<int>(t.n), static_cast<int>(t.k), t.a.data,
       static_cast<int>(t.a.stride), t.b.data, static_cast<int>(t.b.stride), t.accumulate ? T(1) : T(0), t.c,
       static_cast<int>(t.stride));
  if (completion.block) completion.block(completion.object, 0, t.m, 0, t.n);
}

int64_t no_workspace(int64_t, int64_t) { return 0; }

}  // namespace

constinit const Kernels openblas = {
    "openblas", {multiply_tile<float>, no_workspace}, {multiply_tile<double>, no_workspace}};

std::string openblas_description() {
  return std::string(openblas_get_config()) + ", kernels " + openblas_get_corename();
}

}  // namespace orrery::detail::matmul
