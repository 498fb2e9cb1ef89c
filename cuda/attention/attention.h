// Attention on a GPU, for plain C++: problems of engine/attention_formula/problem.h on pointers to device memory.  The
// weighting is a type, because kernels are compiled for it, where cuda/attention/attention.cuh is included: about 11
// seconds of nvcc for each of 29 activations, 3 minutes of a build on two cores.  So every activation has kernels of
// its own, made where its formula stands, and none runs through a table of functions inside the innermost loop.
#pragma once

#include "engine/attention_formula/problem.h"

namespace orrery::cuda {

struct SoftmaxWeights {
  static constexpr bool softmax = true, tensor_cores = true, homogeneous = false;
};
// w = F(s): F has HOST_DEVICE A value(A s) and A derivative(A s) for A = float and double.  With a type
// `tensor_cores` there are kernels of their own for bf16: 20 seconds of nvcc more.  These scale sums of weights and not
// each score if there is a type `homogeneous`, which says that F(a s) = a F(s) for a > 0.
template <class F>
struct PointwiseWeights {
  static constexpr bool softmax = false, tensor_cores = requires { typename F::tensor_cores; },
                        homogeneous = requires { typename F::homogeneous; };
  F f;
  bool zero_below_zero = false;  // F(s) = F'(s) = 0 for s <= 0
};

// The caller has checked the problem.  Everything is queued; the same inputs give the same bits.
template <class A, class Weights>
void attention_forward(const AttentionProblem<A>& problem, const Weights& weights);
template <class A, class Weights>
void attention_statistics(const AttentionProblem<A>& problem, const Weights& weights);
// Takes a Workspace: c of every query for softmax, dz of every query where spans belong to heads, dp of every head.
template <class A, class Weights>
void attention_backward(const AttentionProblem<A>& problem, const Weights& weights);

template <class A>  // float or double
const AttentionKernels<A>& softmax_attention();

}  // namespace orrery::cuda
