#include "cuda/attention/attention.cuh"

namespace orrery::cuda {
namespace {

template <class A>
class Softmax final : public AttentionKernels<A> {
 public:
  void forward(const AttentionProblem<A>& problem) const override { attention_forward(problem, SoftmaxWeights{}); }
  void statistics(const AttentionProblem<A>& problem) const override {
    attention_statistics(problem, SoftmaxWeights{});
  }
  void backward(const AttentionProblem<A>& problem) const override { attention_backward(problem, SoftmaxWeights{}); }
};

}  // namespace

template <class A>
const AttentionKernels<A>& softmax_attention() {
  static const Softmax<A> kernels;
  return kernels;
}
template const AttentionKernels<float>& softmax_attention<float>();
template const AttentionKernels<double>& softmax_attention<double>();

}  // namespace orrery::cuda
