// Values read by weighted scores, as a recorded operation: the one that every fused attention, and every feed-forward
// read as a memory, goes through.  Formulas and what is kept: engine/attention_formula/problem.h; inputs, mask and
// options: engine/attention/attention.h.
#pragma once

#include <optional>

#include "engine/attention/attention.h"
#include "nn/base/simple_operations.h"
#include "nn/formulas/activation.h"

namespace orrery::nn {

// Without a function: softmax.  With `statistics` the rows' sum, entropy, zero_share and maximum as well.
AttentionOutput attention(const AttentionInputs& inputs, const AttentionOptions& options,
                          const std::optional<Activation>& function = {}, bool statistics = false);

// ---- the same by simple operations, which store (B, H, Tq, Tk) arrays: for references, for those who look at weights,
// and for attentions whose row rule has no fused path

// (B, H, Tq, Tk + N), 0 where masked; shown to hooks under the name that the options say
Tensor attention_scores(const AttentionInputs& inputs, const AttentionOptions& options);
// 1 where a key or slot is visible to a query, else 0, as for a key with m = 0.  (B or 1, H or 1, Tq, Tk + N), not
// differentiable.
Tensor attention_mask(const AttentionInputs& inputs, const AttentionOptions& options);
// attention_scores with minus infinity where masked
Tensor masked_scores(const AttentionInputs& inputs, const AttentionOptions& options);
Tensor attention_weights(const AttentionInputs& inputs, const AttentionOptions& options,
                         const std::optional<Activation>& function);
// sum_j d_ij w_ij v_j for any weights (B, H, Tq, Tk + N), with dropout: (B, Tq, H, Dv)
Tensor read_values(const Tensor& weights, const AttentionInputs& inputs, const AttentionOptions& options);
AttentionOutput attention_reference(const AttentionInputs& inputs, const AttentionOptions& options,
                                    const std::optional<Activation>& function, bool statistics = false);

// Sum, entropy, share of zeros and maximum of the rows of any weights; `visible` as `attention_mask` gives it.
AttentionOutput row_statistics(const Tensor& weights, const Tensor& visible);

}  // namespace orrery::nn
