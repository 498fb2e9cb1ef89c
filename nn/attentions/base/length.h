// What L means in L^-alpha, and in every other factor of the number of keys.
//
//   keys_visible    the keys that are visible to this query: not masked by causality, lengths, documents or a window
//   row_index       the number of the query in its document, from 1; causal attention only
//   padded_length   the keys of the padded sequence: results depend on batch mates, so nothing but `fixed` is less wise
//   fixed(n)        n
//
// Persistent slots count in all but fixed; L is at least 1.  The ramp of a learned span does not count: L would jump as
// it moves.
#pragma once

#include "engine/settings/spec.h"
#include "nn/attentions/base/fused.h"
#include "nn/diagnostics/predictions.h"

namespace orrery::nn {

// How many keys are visible to each query, without regard to a span's ramp, slots not counted, f64 numbers as `dtype`:
// (B or 1, Tq).  Not differentiable, like the following.
Tensor visible_keys(const AttentionInputs& inputs, const AttentionMask& mask, Dtype dtype);
// 1 for the queries within query_lengths, 0 for padding, (B or 1, 1, Tq), of the dtype of row statistics.
Tensor real_rows(const AttentionInputs& inputs, const AttentionMask& mask);
// How many keys and slots are visible to each query, 0 for padding: what a loss of the rows' statistics counts by.
// Shape and dtype as above.
Tensor counted_keys(const AttentionInputs& inputs, const AttentionMask& mask);

class LengthRule {
 public:
  LengthRule(std::string_view owner, const Spec& spec, bool causal);
  // ln L for each query, (B or 1, Tq, 1, 1), to be broadcast over (B, Tq, H, Dv); f32 for bf16 queries, as L = 1001
  // has no bf16.  Not differentiable.
  Tensor log_length(const AttentionInputs& inputs, const AttentionMask& mask) const;
  double length(const QueriesAlike& queries) const;  // of a text that begins with the first key
  // L itself
  Tensor length(const AttentionInputs& inputs, const AttentionMask& mask) const;

 private:
  enum class Kind { keys_visible, row_index, padded_length, fixed } kind_;
  int64_t fixed_ = 0;
};

// x factor, computed in the dtype of the factor and rounded once to that of x.
Tensor times_once(const Tensor& x, const Tensor& factor);

}  // namespace orrery::nn
