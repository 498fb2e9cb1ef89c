// Hooks on the hidden units of feed-forwards, which may replace them.
#pragma once

#include <functional>
#include <string_view>

#include "nn/attentions/base/slots.h"
#include "nn/feed_forwards/base/pointwise.h"

namespace orrery::nn {

// Passes path.pre_activation, z = before(), and path.hidden, a = after(z), to hooks. Returns a if a
// hook may replace them, and the feed-forward continues from a; else returns an undefined tensor.
Tensor hooked_hidden(std::string_view path, const std::function<Tensor()>& before,
                     const std::function<Tensor(const Tensor& z)>& after);

struct DenseWeights {
  Tensor input, input_bias, output, output_bias;  // (S, C), (S) or undefined, (C, S), (C) or undefined
};
// Computes dense_feed_forward for `layer`, with hooks on its hidden units.
Tensor hooked_dense(const Module& layer, const Tensor& x, const PointwiseFunction& function, const DenseWeights& w,
                    const Tensor& residual);

// Computes attend_to_slots with softmax. Its hidden units: scores and weights, each (B, H, T, N).
Tensor attend_to_hooked_slots(std::string_view path, const Tensor& x, const SlotKeysAndValues& slots,
                              const AttentionOptions& options);

}  // namespace orrery::nn
