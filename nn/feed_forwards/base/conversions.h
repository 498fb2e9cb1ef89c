// Feed-forwards that attend to slots, and exact conversions between them. They share one formula:
//
//   y = F(scale x K^T + b_K) V + b_V           K (N, C), V (N, C), one row for each slot
//
// This formula is a dense feed-forward with K = W_in and V = W_out^T, a key-value memory, and
// attention of queries x to N keys K with values V, without a mask. With softmax over the slots as
// F it is a softmax memory, and attention to persistent slots with an empty context. Each head has
// its own slots and channels of x. copy_slots states the conditions of a conversion and throws if
// they do not hold.
#pragma once

#include <optional>

#include "nn/base/sublayer.h"
#include "nn/diagnostics/predictions.h"
#include "nn/formulas/activation.h"

namespace orrery::nn {

struct SlotWeights {
  Tensor key, value;                   // (N, H, D), as used; the layer may store other values
  Tensor key_bias, value_bias;         // (N) and (C); undefined if there are none, always with several heads
  std::optional<Activation> function;  // none: softmax over the slots
  Tensor parameters = {};              // learned parameters of the function, (n), if it has any
  double scale = 1;                    // factor of <x, k>
};

// A feed-forward that only attends to slots: dense, memory, persistent.
class SlotFeedForward : public Sublayer {
 public:
  // Returns weights computed from the parameters with autograd, so that gradients reach the
  // parameters. Throws if a setting puts another operation between x and y.
  virtual SlotWeights slot_weights() const = 0;
  virtual void store(const SlotWeights& weights) = 0;  // as slot_weights returns them
  // At initialization, for p = scale x K^T ~ N(0, v), a = F(p) or softmax(p), and N independent values of mean 0:
  //   F         E a^2 = E F(p)^2,     Var y = N E F(p)^2 Var V       relu: E F(p)^2 = v / 2
  //   softmax   E a^2 = exp(v) / N^2, Var y = exp(v) / N Var V       arXiv:2302.06461: why softmax needs few slots
  // Empty if slot_weights throws.
  std::vector<Prediction> predicted(const InputStats& stats) const;
};

SlotWeights slot_weights(const Sublayer& layer);  // throws if the layer has no slots

// Computes y with nn::attention and the slots as the only keys: x (..., H D) -> (..., H D). Biases
// of the keys become one more channel of the keys, which is 1 in every query.
Tensor attention_over_slots(const Tensor& x, const SlotWeights& weights);

// One head: a matrix (N, C) as slots (N, 1, C), and back.
Tensor as_slots(const Tensor& matrix);
Tensor as_matrix(const Tensor& slots);

// Copies the parameters of `from` to `to`, so that both give the same y, to rounding: dense <->
// memory, memory(softmax) <-> persistent, or within one kind. Both must have one function and equal
// numbers of slots, heads and channels. Another scale is multiplied into the keys. Biases are
// copied: biases that only `to` has become 0; biases that `to` lacks must be 0, else it throws.
void copy_slots(const Sublayer& from, Sublayer& to);

}  // namespace orrery::nn
