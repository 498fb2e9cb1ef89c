// The hidden units of feed-forwards, for those who look at them or put others in their place.
#pragma once

#include <functional>
#include <string_view>

#include "nn/attentions/base/slots.h"
#include "nn/feed_forwards/base/pointwise.h"

namespace orrery::nn {

// Shows path.hidden_before, z, and path.hidden, a = F(z), computed beside the fused operation.  If somebody may put
// other values in their place it returns a, and the feed-forward goes on from there; else an undefined tensor.
Tensor hooked_hidden(std::string_view path, const std::function<Tensor()>& before,
                     const std::function<Tensor(const Tensor& z)>& after);

struct DenseWeights {
  Tensor input, input_bias, output, output_bias;  // (S, C), (S) or undefined, (C, S), (C) or undefined
};
// dense_feed_forward, for the layer whose hidden units these are.
Tensor read_dense(const Module& layer, const Tensor& x, const PointwiseFunction& function, const DenseWeights& w,
                  const Tensor& residual);

// read_slots by softmax, for a feed-forward: its hidden units are scores and weights, (B, H, T, N) each.
Tensor read_hooked_slots(std::string_view path, const Tensor& x, const SlotKeysAndValues& slots,
                         const AttentionOptions& options);

}  // namespace orrery::nn
