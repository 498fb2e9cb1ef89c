// The length L in L^-alpha and in every other factor that depends on the number of keys.
//
//   keys_visible    keys visible to this query: not masked by causality, lengths, documents, window
//   row_index       the index of the query in its document, from 1; causal attention only
//   padded_length   keys of the sequence and its padding, so results depend on the batch
//   fixed(n)        n
//
// Persistent slots count in all except fixed; L is at least 1. The ramp of a learned span does not
// count, otherwise L would jump as the ramp moves.
#pragma once

#include "engine/settings/spec.h"
#include "nn/attentions/base/fused.h"
#include "nn/diagnostics/predictions.h"

namespace orrery::nn {

// Returns the number of keys visible to each query, (B or 1, Tq) in `dtype`, without slots and
// regardless of a span's ramp. Not differentiable, like the next two.
Tensor visible_keys(const AttentionInputs& inputs, const AttentionMask& mask, Dtype dtype);
// Returns 1 for queries within query_lengths, 0 for padding: (B or 1, 1, Tq), f64 or f32.
Tensor real_rows(const AttentionInputs& inputs, const AttentionMask& mask);
// Returns the number of keys and slots visible to each query, 0 for padding, for losses of row
// statistics. Shape and dtype as above.
Tensor counted_keys(const AttentionInputs& inputs, const AttentionMask& mask);

class LengthScale {
 public:
  LengthScale(std::string_view owner, const Spec& spec, bool causal);
  // Returns ln L for each query, (B or 1, Tq, 1, 1), which broadcasts over (B, Tq, H, Dv); f32 for
  // bf16 queries, because bf16 cannot represent L = 1001. Not differentiable.
  Tensor log_length(const AttentionInputs& inputs, const AttentionMask& mask) const;
  double length(const QueryGroup& queries) const;  // for a text that starts at the first key
  // Returns L, shaped like log_length.
  Tensor length(const AttentionInputs& inputs, const AttentionMask& mask) const;

 private:
  enum class Kind { keys_visible, row_index, padded_length, fixed } kind_;
  int64_t fixed_ = 0;
};

// Returns x factor, computed in the dtype of the factor and rounded once to the dtype of x.
Tensor times_once(const Tensor& x, const Tensor& factor);

}  // namespace orrery::nn
