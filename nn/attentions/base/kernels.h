// Attention on a GPU, as a role of every activation.  Its kernels are compiled for the function that weighs the scores,
// for f32 and f64 (bf16 is f32's with other loads and stores, chosen at run time, and for some activations has tensor
// cores of its own): about 11 seconds of nvcc for each of 29 activations, 3 minutes of a build on two cores.  So every
// activation has kernels of its own, made where its formula stands, and none runs through a table of functions inside
// the innermost loop.
#pragma once

#include "engine/attention/attention.h"
#if defined(ORRERY_CUDA) || defined(EMULATE_CUDA)
#include "cuda/attention/attention.h"
#endif
#if defined(__CUDACC__) || defined(EMULATE_CUDA)
#include "cuda/attention/attention.cuh"
#endif

namespace orrery::nn {

// The functions of engine/base/attention.h on device pointers.
template <class T>
class AttentionRole {
 public:
  using A = Arithmetic<T>;
  static constexpr const char* role = "attend";
  template <class F>
  class Of;
  virtual void forward(const AttendSizes&, const AttendOptions&, const AttendInputs<T>&, Tokens<T> output,
                       A* log_sum) const = 0;
  virtual void statistics(const AttendSizes&, const AttendOptions&, const AttendInputs<T>&, const A* log_sum,
                          const RowStatistics<A>&) const = 0;
  virtual void backward(const AttendSizes&, const AttendOptions&, const AttendInputs<T>&, Tokens<const T> output,
                        const A* log_sum, Tokens<const T> output_gradient, const AttendGradients<T>&,
                        const StatisticsGradients<A>&) const = 0;

 protected:
  ~AttentionRole() = default;
};

#if defined(ORRERY_CUDA) || defined(EMULATE_CUDA)
template <class T, class Weights>  // a weighting of cuda/attention/attention.h
class AttentionKernels : public AttentionRole<T> {
 public:
  using typename AttentionRole<T>::A;
  explicit AttentionKernels(const Weights& weights) : weights_(weights) {}
  void forward(const AttendSizes& sizes, const AttendOptions& options, const AttendInputs<T>& inputs, Tokens<T> output,
               A* log_sum) const override {
    cuda::attend_forward<T>(sizes, options, weights_, inputs, output, log_sum);
  }
  void statistics(const AttendSizes& sizes, const AttendOptions& options, const AttendInputs<T>& inputs,
                  const A* log_sum, const RowStatistics<A>& results) const override {
    cuda::attend_statistics<T>(sizes, options, weights_, inputs, log_sum, results);
  }
  void backward(const AttendSizes& sizes, const AttendOptions& options, const AttendInputs<T>& inputs,
                Tokens<const T> output, const A* log_sum, Tokens<const T> output_gradient,
                const AttendGradients<T>& gradients, const StatisticsGradients<A>& of_statistics) const override {
    cuda::attend_backward<T>(sizes, options, weights_, inputs, output, log_sum, output_gradient, gradients,
                             of_statistics);
  }

 private:
  Weights weights_;
};
#endif
#if defined(__CUDACC__) || defined(EMULATE_CUDA)
template <class T>
template <class F>
class AttentionRole<T>::Of : public AttentionKernels<T, cuda::PointwiseWeights<F>> {
 public:
  explicit Of(const F& f) : AttentionKernels<T, cuda::PointwiseWeights<F>>({f, F::info.zero_below_zero}) {}
};
#endif

}  // namespace orrery::nn
