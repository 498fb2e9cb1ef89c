// What L means in L^-alpha, and in every other factor of the number of keys.
//
//   keys_visible    the keys that this query sees: not hidden by causality, lengths, documents or a window
//   row_index       the number of the query in its document, from 1; causal attention only
//   padded_length   the keys of the padded sequence: results depend on batch mates, so nothing but `fixed` is less wise
//   fixed(n)        n
//
// Persistent slots count in all but fixed; L is at least 1.  The ramp of a learned span does not count: L would jump as
// it moves.
#pragma once

#include "engine/base/config.h"
#include "nn/attentions/base/fused.h"

namespace orrery::nn {

class LengthRule {
 public:
  LengthRule(std::string_view owner, const Spec& spec, bool causal);
  // ln L for each query, (B or 1, Tq, 1, 1), to be broadcast over (B, Tq, H, Dv); f32 for bf16 queries, as L = 1001
  // has no bf16.  Not differentiable.
  Tensor log_length(const Reading& reading, const ReadingOptions& options) const;
  // L itself
  Tensor length(const Reading& reading, const ReadingOptions& options) const;

 private:
  enum class Kind { keys_visible, row_index, padded_length, fixed } kind_;
  int64_t fixed_ = 0;
};

// x factor, computed in the dtype of the factor and rounded once to that of x.
Tensor times_once(const Tensor& x, const Tensor& factor);

}  // namespace orrery::nn
