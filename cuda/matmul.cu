#include "cuda/matmul.h"

#include "cuda/matmul.cuh"
#include "cuda/matmul_parts.cuh"
#include "cuda/matmul_tensor_core.cuh"

namespace orrery::cuda {
namespace {

template <class Kernels, class T, class Result>
void run(const Matmul<T, Result>& p) {
  if (p.bias || p.residual)
    run_matmul<Kernels>(p, AddBias<Result>{{p.bias}, {p.residual}, p.n});
  else
    run_matmul<Kernels>(p, Plain<Result>{});
}

// Large tiles read each element less often, small ones keep more of the card busy.
bool large_tiles_fill_the_card(const Matmul<float>& p) {
  constexpr int64_t blocks = 128, piece = 512;
  return matmul_tiles(p.m, 128) * matmul_tiles(p.n, 128) * p.batch * std::max<int64_t>(1, p.k / piece) >= blocks;
}

}  // namespace

void multiply(const Matmul<float>& p, int parts) {
  const AddBias<float> finish{{p.bias}, {p.residual}, p.n};
  if (p.m * p.n * p.batch == 0) return;
  if (parts == 1) return run_matmul<PartsKernels<1>>(p, finish);
  if (parts == 2) return run_matmul<PartsKernels<2>>(p, finish);
  if (parts == 3) return run_matmul<PartsKernels<3>>(p, finish);
  if (large_tiles_fill_the_card(p))
    run<PlainKernels<float, 128>>(p);
  else
    run<PlainKernels<float, 64>>(p);
}
void multiply(const Matmul<double>& p) {
  if (p.m * p.n * p.batch > 0) run<PlainKernels<double, 64>>(p);
}
void multiply(const Matmul<bf16>& p) {
  if (p.m * p.n * p.batch > 0) run_matmul<TensorCoreKernels>(p, AddBias<bf16>{{p.bias}, {p.residual}, p.n});
}
void multiply(const Matmul<bf16, float>& p) {
  if (p.m * p.n * p.batch > 0) run_matmul<TensorCoreKernels>(p, AddBias<float>{{p.bias}, {p.residual}, p.n});
}

}  // namespace orrery::cuda
