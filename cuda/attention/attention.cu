#include "cuda/attention/attention.cuh"

namespace orrery::cuda {
namespace {

struct Softmax {
  static SoftmaxWeights weights(AttentionKernels::Constants) { return {}; }
};

}  // namespace

constinit const AttentionKernels softmax_attention = attention_kernels<Softmax>();

}  // namespace orrery::cuda
