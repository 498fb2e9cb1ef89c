// Linear layer: y = x W^T + b.
#pragma once

#include <optional>
#include <vector>

#include "engine/autograd/autograd.h"
#include "nn/base/module.h"

namespace orrery::nn {

// x (..., C), weight (N, C), bias (N) or undefined, residual (..., N) or undefined. Returns
// x W^T + bias + residual (..., N), computed in one pass over the result.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const Tensor& residual = {});

// Like linear, but splits the result into dense tensors (..., sizes[i]), such as queries, keys and
// values. Needs two to four sizes, which add up to N.
std::vector<Tensor> linear_split(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                 const std::vector<int64_t>& sizes);

class Linear final : public Module {
 public:
  struct Options {
    bool bias = true;                           // initially 0 if `weight` is given, else as the default of `weight`
    std::optional<Initialization> weight = {};  // default: uniform(1 / sqrt(inputs)), as in PyTorch
    std::vector<int64_t> packed_rows = {};      // as Parameter::packed_rows, of weight and bias
  };
  Linear(int64_t inputs, int64_t outputs, const Options& options);
  Tensor forward(const Tensor& x, ForwardPass& pass) override;  // (..., inputs) -> (..., outputs)
  void visit(Visitor& v) override;

  Parameter weight;  // (outputs, inputs)
  Parameter bias;    // (outputs), or undefined
};

// Shared by linear operations and operations that contain one (nn/feed_forwards/dense.cpp).
namespace detail {

// Returns db (N), the sum of the rows of g (..., N), in the gradient buffer of input number
// `input`; undefined if this input needs no gradient.
Tensor bias_gradient(const Saved& saved, int input, const Tensor& g);
// One to four tensors (..., N_i) that stand for one (..., N), their concatenation.
using SideBySide = std::vector<Tensor>;
// Returns g if the functions below read several tensors in place, else their concatenation.
SideBySide side_by_side(const SideBySide& g);
// Returns dx = g W; g (..., N), W (N, C).
Tensor input_gradient(const SideBySide& g, const Tensor& weight);
// Returns dW = g^T x and db in the buffers of `input` and the next input; g (..., N), x (..., C).
Gradients<2> weight_gradients(const Saved& saved, int input, const SideBySide& g, const Tensor& x);

}  // namespace detail

}  // namespace orrery::nn
