// Feed-forward layers of a block.
#pragma once

#include "nn/base/entry.h"
#include "nn/base/sublayer.h"
#include "nn/formulas/activation.h"
#include "nn/layers/initial_weights.h"

namespace orrery::nn {

struct FeedForwardOptions {
  int64_t width;  // channels of input and output
  int64_t d_ff;   // hidden units
  bool bias = true;
  int64_t layers = 1;  // layers of the model; more layers make the initial output projection smaller
  InitialWeights initial_weights = {};
  // Activation parameters that all layers of the model share; the first layer makes them. The model
  // visits them and must outlive the layer.
  Parameter* shared_activation = nullptr;
};

using FeedForwardEntry = Entry<Sublayer, const FeedForwardOptions&>;
Registry<FeedForwardEntry>& feed_forwards();
std::unique_ptr<Sublayer> make_feed_forward(const Spec& spec, const FeedForwardOptions& options);  // (..., C) -> same

// F(x W_in^T + b_in) W_out^T + b_out + residual as one operation: x (..., C), input (S, C), output (C, S); S is d_ff.
// p: the learned parameters of F (n), if it has any.
Tensor dense_feed_forward(const Tensor& x, const Activation& activation, const Tensor& input, const Tensor& input_bias,
                          const Tensor& output, const Tensor& output_bias, const Tensor& residual = {},
                          const Tensor& p = {});
// (F(x W_gate^T + b_gate) (x W_up^T + b_up)) W_out^T + b_out + residual as one operation: x (..., C), input (2 S, C)
// with W_gate above W_up, input_bias (2 S), output (C, S).
Tensor gated_feed_forward(const Tensor& x, const Activation& activation, const Tensor& input, const Tensor& input_bias,
                          const Tensor& output, const Tensor& output_bias, const Tensor& residual = {});

#define REGISTER_FEED_FORWARD(Type)                      \
  [[maybe_unused]] static const bool registered_##Type = \
      ::orrery::nn::register_type<Type>(::orrery::nn::feed_forwards())

}  // namespace orrery::nn
