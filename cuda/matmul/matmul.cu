#include "cuda/matmul/matmul.h"

#include "cuda/matmul/matmul.cuh"
#include "cuda/matmul/parts.cuh"
#include "cuda/matmul/tensor_core_tiles.cuh"

namespace orrery::cuda {
namespace {

template <class Kernels, class T, class Result>
void run(const Matmul<T, Result>& p) {
  if (p.bias || p.residual)
    run_matmul<Kernels>(p, AddBias<Result>{{p.bias}, {p.residual}, p.n});
  else
    run_matmul<Kernels>(p, Plain<Result>{});
}

}  // namespace

template <class Kernels, class T>
void launch_sums(const MatmulPlan<T, Arithmetic<T>>& plan) {
  Kernels::launch(plan, Plain<Arithmetic<T>>{});
}
template void launch_sums<PlainKernels<float, 128>, float>(const MatmulPlan<float, float>&);
template void launch_sums<PlainKernels<float, 64>, float>(const MatmulPlan<float, float>&);
template void launch_sums<PlainKernels<double, 64>, double>(const MatmulPlan<double, double>&);
template void launch_sums<TensorCoreKernels, bf16>(const MatmulPlan<bf16, float>&);
template void launch_sums<PartsKernels<1>, float>(const MatmulPlan<float, float>&);
template void launch_sums<PartsKernels<2>, float>(const MatmulPlan<float, float>&);
template void launch_sums<PartsKernels<3>, float>(const MatmulPlan<float, float>&);

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
