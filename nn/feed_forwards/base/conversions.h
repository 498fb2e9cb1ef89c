// Feed-forwards that read slots, and the exact ways from one to another.
//
//   y = F(scale x K^T + b_K) V + b_V           K (N, C), V (N, C), one row for each slot
//
// is a dense feed-forward with K = W_in and V = W_out^T, a key-value memory, and attention without a mask over N keys
// that every token sees: queries x, keys K, values V.  With softmax over the slots in place of F it is a softmax
// memory, and persistent slots with an empty context; with heads, each reads its own slots with its own part of x. What
// has to hold for a conversion is said at copy_slots; what cannot be converted is an error with a sentence.
#pragma once

#include <optional>

#include "nn/base/sublayer.h"
#include "nn/diagnostics/predictions.h"
#include "nn/formulas/activation.h"

namespace orrery::nn {

struct SlotWeights {
  Tensor key, value;                   // (N, H, D): as they are used, whatever the layer stores
  Tensor key_bias, value_bias;         // (N) and (C); undefined if there are none, as always with several heads
  std::optional<Activation> function;  // none: softmax over the slots
  double scale = 1;                    // of <x, k>
};

// A feed-forward that is nothing but slots that are read: dense, memory, persistent.
class SlotReader : public Sublayer {
 public:
  // Made from the parameters by recorded operations, so that gradients of what is done with them reach the parameters.
  // An error if a setting puts something else between x and y.
  virtual SlotWeights slot_weights() const = 0;
  virtual void store(const SlotWeights& weights) = 0;  // of the form that slot_weights gives
  // Before learning, with p = scale x K^T N(0, v) and values that are independent with mean 0, over N slots:
  //   of F         E a^2 = E F(p)^2,     Var y = N E F(p)^2 Var V       v / 2 and N v / 2 for relu
  //   of softmax   E a^2 = exp(v) / N^2, Var y = exp(v) / N Var V       arXiv:2302.06461: why softmax needs few slots
  // Nothing for layers that have no slot_weights.
  std::vector<Prediction> predicted(const Given& given) const;
};

SlotWeights slot_weights(const Sublayer& layer);  // an error if the layer reads no slots

// y by nn::attention, with the slots as the only keys: x (..., H D) -> (..., H D).  A bias of the keys is what they
// have on one more channel, which is 1 in every query.
Tensor attention_over_slots(const Tensor& x, const SlotWeights& weights);

// One head: a matrix (N, C) as slots (N, 1, C), and back.
Tensor as_slots(const Tensor& matrix);
Tensor as_matrix(const Tensor& slots);

// Copies the parameters of `from` into `to`, so that both give the same y, to rounding: dense <-> memory,
// memory(softmax)
// <-> persistent, or either to its own kind.  Both must read with one function, the same number of slots, heads and
// channels.  Another scale goes into the keys.  Biases are copied; those that `to` has alone become 0, those that it
// lacks are an error unless they are 0.
void copy_slots(const Sublayer& from, Sublayer& to);

}  // namespace orrery::nn
