// Attention on a GPU, for plain C++: problems of engine/attention_formula/problem.h with device
// pointers. The weighting is a type: each formula file that includes cuda/attention/attention.cuh
// compiles its own kernels, so the innermost loop of a kernel calls no function pointer. Each of 31
// activations takes about 11 seconds of nvcc, together 3 minutes of a build on two cores.
#pragma once

#include "engine/attention_formula/problem.h"

namespace orrery::cuda {

struct SoftmaxWeights {
  static constexpr bool softmax = true, tensor_cores = true, homogeneous = false, positive_part = false;
  static constexpr int parameters = 0;
};
// w = F(s): F has HOST_DEVICE A value(A s) and A derivative(A s) for A = float and double. A type
// F::tensor_cores adds kernels for bf16 (20 more seconds of nvcc). They scale sums instead of scores if
// F::homogeneous exists: F(a s) = a F(s), a > 0. F::positive_part: F(s) = max(s, 0), a way of rounding.
template <class F>
struct PointwiseWeights {
  static constexpr int parameters = 0;  // learned ones
  static constexpr bool softmax = false, tensor_cores = requires { typename F::tensor_cores; },
                        positive_part = requires { typename F::positive_part; },
                        homogeneous = positive_part || requires { typename F::homogeneous; };
  F f;
  bool zero_below_zero = false;  // F(s) = F'(s) = 0 for s <= 0
};
// F with learned parameters: Bind::of(f, p) returns it with those at p, and with parameter_derivatives.
template <class F, class Bind>
struct LearnedWeights : PointwiseWeights<F> {
  using Binding = Bind;
  static constexpr int parameters = Bind::count;
};

// The caller checks the problem. The work is queued; equal inputs give bit-identical results.
template <class A, class Weights>
void attention_forward(const AttentionProblem<A>& problem, const Weights& weights);
template <class A, class Weights>
void attention_statistics(const AttentionProblem<A>& problem, const Weights& weights);
// Allocates a Workspace: c per query for softmax, dz per query if spans are per head, dp per head.
template <class A, class Weights>
void attention_backward(const AttentionProblem<A>& problem, const Weights& weights);

template <class A>  // float or double
const AttentionKernels<A>& softmax_attention();

}  // namespace orrery::cuda
