// y = x W^T + b: a linear layer.
#pragma once

#include <optional>

#include "engine/autograd/autograd.h"
#include "nn/base/module.h"

namespace orrery::nn {

// x (..., C), weight (N, C), bias (N) or undefined, residual (..., N) or undefined, added to the result while it is in
// the cache.  Returns (..., N).
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const Tensor& residual = {});

// The same with the rows of the weight divided into several results, (..., sizes[i]) each, dense: queries, keys and
// values of an attention.  Two to four sizes, which add up to N.
std::vector<Tensor> linear_split(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                 const std::vector<int64_t>& sizes);

class Linear final : public Module {
 public:
  struct Options {
    bool bias = true;
    std::optional<Initialization> weight = {};  // default: uniform(1 / sqrt(inputs)), as PyTorch's
    std::vector<int64_t> parts = {};            // several layers in one: the outputs of each
  };
  Linear(int64_t inputs, int64_t outputs, const Options& options);
  Tensor forward(const Tensor& x, Pass& pass) override;
  void visit(Visitor& v) override;

  Parameter weight;  // (outputs, inputs)
  Parameter bias;    // (outputs); undefined if there is none
};

// What the linear operations share with those that contain one (nn/feed_forwards/dense.cpp).
namespace detail {

// Sums the rows of g, (R, N), where the gradient of input `input` of an operation belongs; undefined if unused.
Tensor bias_gradient(const Saved& saved, int input, const Tensor& g);
// dW = g^T x and db where the gradients of `input` and of the next one belong: g (R, N), x (R, C), any leading axes.
Gradients<2> weight_gradients(const Saved& saved, int input, const Tensor& g, const Tensor& x);

}  // namespace detail

}  // namespace orrery::nn
