// Attention on a GPU, for plain C++: the functions of engine/base/attention.h on pointers to device memory, those of
// the options too.  The weighting is a type, because kernels are compiled for it: softmax is there for all dtypes; a
// pointwise one is compiled where cuda/attention/attention.cuh is included and F is known.
#pragma once

#include "engine/base/attention.h"

namespace orrery::cuda {

struct SoftmaxWeights {
  static constexpr bool softmax = true, tensor_cores = true;
};
// w = F(s): F has HOST_DEVICE A value(A s) and A derivative(A s) for A = float and double.  With a type
// `tensor_cores` there are kernels of their own for bf16: 20 seconds of nvcc more.
template <class F>
struct PointwiseWeights {
  static constexpr bool softmax = false, tensor_cores = requires { typename F::tensor_cores; };
  F f;
  bool zero_below_zero = false;  // F(s) = F'(s) = 0 for s <= 0
};

// T is float, double or bf16.  The caller has checked the problem as engine/attend does.  Everything is queued; the
// same inputs give the same bits.
template <class T, class Weights>
void attend_forward(const AttendSizes& sizes, const AttendOptions& options, const Weights& weights,
                    const AttendInputs<T>& inputs, Tokens<T> output, Arithmetic<T>* log_sum);
template <class T, class Weights>
void attend_statistics(const AttendSizes& sizes, const AttendOptions& options, const Weights& weights,
                       const AttendInputs<T>& inputs, const Arithmetic<T>* log_sum,
                       const RowStatistics<Arithmetic<T>>& statistics);
// Takes a Workspace: c of every query for softmax, dz of every query where spans belong to heads, dp of every head.
template <class T, class Weights>
void attend_backward(const AttendSizes& sizes, const AttendOptions& options, const Weights& weights,
                     const AttendInputs<T>& inputs, Tokens<const T> output, const Arithmetic<T>* log_sum,
                     Tokens<const T> output_gradient, const AttendGradients<T>& gradients,
                     const StatisticsGradients<Arithmetic<T>>& statistics);

// Compiled once, in attend.cu.
extern template void attend_forward(const AttendSizes&, const AttendOptions&, const SoftmaxWeights&,
                                    const AttendInputs<float>&, Tokens<float>, float*);
extern template void attend_statistics(const AttendSizes&, const AttendOptions&, const SoftmaxWeights&,
                                       const AttendInputs<float>&, const float*, const RowStatistics<float>&);
extern template void attend_backward(const AttendSizes&, const AttendOptions&, const SoftmaxWeights&,
                                     const AttendInputs<float>&, Tokens<const float>, const float*, Tokens<const float>,
                                     const AttendGradients<float>&, const StatisticsGradients<float>&);
extern template void attend_forward(const AttendSizes&, const AttendOptions&, const SoftmaxWeights&,
                                    const AttendInputs<double>&, Tokens<double>, double*);
extern template void attend_statistics(const AttendSizes&, const AttendOptions&, const SoftmaxWeights&,
                                       const AttendInputs<double>&, const double*, const RowStatistics<double>&);
extern template void attend_backward(const AttendSizes&, const AttendOptions&, const SoftmaxWeights&,
                                     const AttendInputs<double>&, Tokens<const double>, const double*,
                                     Tokens<const double>, const AttendGradients<double>&,
                                     const StatisticsGradients<double>&);
extern template void attend_forward(const AttendSizes&, const AttendOptions&, const SoftmaxWeights&,
                                    const AttendInputs<bf16>&, Tokens<bf16>, float*);
extern template void attend_statistics(const AttendSizes&, const AttendOptions&, const SoftmaxWeights&,
                                       const AttendInputs<bf16>&, const float*, const RowStatistics<float>&);
extern template void attend_backward(const AttendSizes&, const AttendOptions&, const SoftmaxWeights&,
                                     const AttendInputs<bf16>&, Tokens<const bf16>, const float*, Tokens<const bf16>,
                                     const AttendGradients<bf16>&, const StatisticsGradients<float>&);

}  // namespace orrery::cuda
