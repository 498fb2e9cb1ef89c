// Attention on a GPU as a role, with kernels per activation; cuda/attention/attention.h states why.
#pragma once

#include "engine/attention_formula/problem.h"
#if defined(__CUDACC__) || defined(EMULATE_CUDA)
#include "cuda/attention/attention.cuh"
#include "nn/formulas/formula.h"
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
template <class F>
struct BindParameters {
  static constexpr int count = learned_count<F>;
  template <class A>
  HOST_DEVICE static auto of(const F& f, const A* p) {
    return bound<A>(f, p);
  }
};

template <class A>
template <class F>
class AttentionRole<A>::Of : public AttentionRole<A> {
 public:
  explicit Of(const F& f) : weights_{cuda::PointwiseWeights<F>{f, F::info.zero_below_zero}} {}
  void forward(const AttentionProblem<A>& problem) const override { cuda::attention_forward(problem, weights_); }
  void statistics(const AttentionProblem<A>& problem) const override { cuda::attention_statistics(problem, weights_); }
  void backward(const AttentionProblem<A>& problem) const override { cuda::attention_backward(problem, weights_); }

 private:
  std::conditional_t<(learned_count<F> > 0), cuda::LearnedWeights<F, BindParameters<F>>, cuda::PointwiseWeights<F>>
      weights_;
};
#endif

}  // namespace orrery::nn
