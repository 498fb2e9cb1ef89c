// Attention on a GPU as a role, with kernels per activation; cuda/attention/attention.h states why.
#pragma once

#include "engine/attention_formula/problem.h"
#if defined(__CUDACC__) || defined(EMULATE_CUDA)
#include "cuda/attention/attention.cuh"
#endif

namespace orrery::nn {

template <class A>  // float, for bf16 too, or double
class AttentionRole : public AttentionKernels<A> {
 public:
  static constexpr const char* role = "attention";
  template <class F>
  class Of;

 protected:
  ~AttentionRole() = default;
};

#if defined(__CUDACC__) || defined(EMULATE_CUDA)
template <class A>
template <class F>
class AttentionRole<A>::Of : public AttentionRole<A> {
 public:
  explicit Of(const F& f) : weights_{f, F::info.zero_below_zero} {}
  void forward(const AttentionProblem<A>& problem) const override { cuda::attention_forward(problem, weights_); }
  void statistics(const AttentionProblem<A>& problem) const override { cuda::attention_statistics(problem, weights_); }
  void backward(const AttentionProblem<A>& problem) const override { cuda::attention_backward(problem, weights_); }

 private:
  cuda::PointwiseWeights<F> weights_;
};
#endif

}  // namespace orrery::nn
