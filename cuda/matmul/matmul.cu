#include "cuda/matmul/matmul.h"

#include <utility>
#include <vector>

#include "cuda/matmul/bf16_split.cuh"
#include "cuda/matmul/matmul.cuh"
#include "cuda/matmul/tensor_core_kernels.cuh"
#include "cuda/matmul/tensor_core_runs.cuh"

namespace orrery::cuda {
namespace {

template <class Kernels, class T, class Result>
void run(const Matmul<T, Result>& p) {
  if (p.bias || p.residual)
    run_matmul<Kernels>(p, AddBias<Result>{p.bias, p.residual});
  else
    run_matmul<Kernels>(p, Plain<Result>{});
}

__global__ void __launch_bounds__(matmul_threads) aligned_rows_kernel(const __grid_constant__ AlignedRows p) {
  const int64_t chunks = p.to_stride / AlignedRows::chunk, all = p.matrices * p.rows * chunks;
  const int64_t step = int64_t{gridDim.x} * matmul_threads;
  wait_for_earlier();
  allow_next();
  for (int64_t i = int64_t{blockIdx.x} * matmul_threads + threadIdx.x; i < all; i += step) {
    const int64_t row = i / chunks % p.rows, matrix = i / chunks / p.rows, column = i % chunks * AlignedRows::chunk;
    Vector<bf16, AlignedRows::chunk> values = {};
    for (const AlignedRows::Segment& segment : p.segments) {
      const int64_t first = column - segment.to_begin;
      const bf16* const from = segment.from + matrix * p.from_matrix + row * segment.stride + first;
#pragma unroll
      for (int e = 0; e < AlignedRows::chunk; ++e)
        if (first + e >= 0 && first + e < segment.count) values.value[e] = from[e];
    }
    bf16* const to = p.to + matrix * p.to_matrix + row * p.to_stride + column;
    *reinterpret_cast<Vector<bf16, AlignedRows::chunk>*>(to) = values;
  }
}

// This thread's aligned copies, and `guards`, its number of AlignedCopies.
struct CopyCache {
  int guards = 0;
  std::vector<std::pair<AlignedRows, std::shared_ptr<Workspace>>> copies;  // AlignedRows with a null `to`
};
CopyCache& copy_cache() {
  static thread_local CopyCache cache;
  return cache;
}

}  // namespace

std::shared_ptr<Workspace> copy_aligned_rows(AlignedRows& p) {
  constexpr int64_t max_blocks = 2048;
  CopyCache& cache = copy_cache();
  const AlignedRows wanted = p;
  std::shared_ptr<Workspace> copy;
  for (const auto& [rows, made] : cache.copies)
    if (rows == wanted) copy = made;
  const bool is_new = !copy;
  if (is_new) copy = std::make_shared<Workspace>(p.matrices * p.to_matrix * static_cast<int64_t>(sizeof(bf16)));
  if (is_new && cache.guards > 0) cache.copies.emplace_back(wanted, copy);
  p.to = static_cast<bf16*>(copy->data());
  const int64_t chunks = p.matrices * p.rows * p.to_stride / AlignedRows::chunk;
  if (!is_new || chunks == 0) return copy;
  const int64_t blocks = std::min(matmul_tiles(chunks, matmul_threads), max_blocks);
  launch({"matmul: aligned rows", static_cast<unsigned>(blocks), matmul_threads}, aligned_rows_kernel, p);
  return copy;
}

AlignedCopies::AlignedCopies() { ++copy_cache().guards; }
AlignedCopies::~AlignedCopies() {
  if (--copy_cache().guards == 0) copy_cache().copies.clear();
}

template <class Kernels, class T>
void launch_sums(const MatmulPlan<T, Arithmetic<T>>& plan) {
  Kernels::launch(plan, Plain<Arithmetic<T>>{});
}
template void launch_sums<PlainKernels<float, 128>, float>(const MatmulPlan<float, float>&);
template void launch_sums<PlainKernels<float, 64>, float>(const MatmulPlan<float, float>&);
template void launch_sums<PlainKernels<double, 64>, double>(const MatmulPlan<double, double>&);
template void launch_sums<TensorCoreKernels<128>, bf16>(const MatmulPlan<bf16, float>&);
template void launch_sums<TensorCoreKernels<256>, bf16>(const MatmulPlan<bf16, float>&);
template void launch_sums<SplitKernels<1>, float>(const MatmulPlan<float, float>&);
template void launch_sums<SplitKernels<2>, float>(const MatmulPlan<float, float>&);
template void launch_sums<SplitKernels<3>, float>(const MatmulPlan<float, float>&);

void multiply(const Matmul<float>& p, int terms) {
  const AddBias<float> finish{p.bias, p.residual};
  if (p.m * p.n * p.batch == 0) return;
  if (terms == 1) return run_matmul<SplitKernels<1>>(p, finish);
  if (terms == 2) return run_matmul<SplitKernels<2>>(p, finish);
  if (terms == 3) return run_matmul<SplitKernels<3>>(p, finish);
  if (large_tiles_fill_the_gpu(p))
    run<PlainKernels<float, 128>>(p);
  else
    run<PlainKernels<float, 64>>(p);
}
void multiply(const Matmul<double>& p) {
  if (p.m * p.n * p.batch > 0) run<PlainKernels<double, 64>>(p);
}
template <class Result>
void multiply_on_tensor_cores(const Matmul<bf16, Result>& p) {
  const AddBias<Result> finish{p.bias, p.residual};
  if (p.m * p.n * p.batch == 0) return;
  const bool in_pipeline = pipelined(plan_of<TensorCoreKernels<256>>(p, finish));
  const int columns = columns_of_tiles(p, device_properties().multiprocessors, in_pipeline);
  if (columns == 256) return run_matmul<TensorCoreKernels<256>>(p, finish);
  if (columns == 192) return run_matmul<TensorCoreKernels<192>>(p, finish);
  run_matmul<TensorCoreKernels<128>>(p, finish);
}
void multiply(const Matmul<bf16>& p) { multiply_on_tensor_cores(p); }
void multiply(const Matmul<bf16, float>& p) { in_runs(p) ? multiply_in_runs(p) : multiply_on_tensor_cores(p); }

}  // namespace orrery::cuda
