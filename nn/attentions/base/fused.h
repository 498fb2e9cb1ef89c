// Attention as an autograd operation, used by every fused attention and every feed-forward that
// attends to slots. Formulas and saved tensors: engine/attention_formula/problem.h; inputs, mask
// and options: engine/attention/attention.h.
#pragma once

#include <functional>
#include <optional>

#include "engine/attention/attention.h"
#include "nn/base/reference_mode.h"
#include "nn/formulas/activation.h"

namespace orrery::nn {

// q (B, Tq, H, D), k (B, Tk, Hk, D), v (B, Tk, Hk, Dv) -> (B, Tq, H, Dv). Without a function:
// softmax. Its learned parameters are in the inputs, as trained: (H, n) or (n). `statistics` adds
// sum, entropy, zero_fraction and maximum per row.
AttentionOutput attention(const AttentionInputs& inputs, const AttentionOptions& options,
                          const std::optional<Activation>& function = {}, bool statistics = false);

// ---- attention from simple operations, with (B, H, Tq, Tk) arrays: for references, hooks, row rules

// Passes a value on the way from q and k to the weights to hooks that read it, if the name in the options is that of
// scores: path.NAME, or path.slot_NAME for split slots. The names are in engine/autograd/hooks.h.
void show_step(const AttentionOptions& options, std::string_view name, const std::function<Tensor()>& value);
// Returns true if a hook reads such a step.
bool has_hooked_step(const AttentionOptions& options);
// Returns the scores (B, H, Tq, Tk + N), 0 where masked. Hooks get them by the name in the options.
Tensor attention_scores(const AttentionInputs& inputs, const AttentionOptions& options);
// Returns 1 where a key or slot is visible to a query, else 0 (also where the span's ramp gives
// weight 0): (B or 1, H or 1, Tq, Tk + N), not differentiable.
Tensor attention_mask(const AttentionInputs& inputs, const AttentionOptions& options);
// Returns attention_scores with minus infinity where masked.
Tensor masked_scores(const AttentionInputs& inputs, const AttentionOptions& options);
Tensor attention_weights(const AttentionInputs& inputs, const AttentionOptions& options,
                         const std::optional<Activation>& function);  // (B, H, Tq, Tk + N)
// Returns sum_j d_ij w_ij v_j for any weights (B, H, Tq, Tk + N), with dropout: (B, Tq, H, Dv).
Tensor apply_weights(const Tensor& weights, const AttentionInputs& inputs, const AttentionOptions& options);
AttentionOutput attention_reference(const AttentionInputs& inputs, const AttentionOptions& options,
                                    const std::optional<Activation>& function, bool statistics = false);  // attention

// Returns sum, entropy, fraction of zeros and maximum of each row; `visible`: from attention_mask.
AttentionOutput row_statistics(const Tensor& weights, const Tensor& visible);

}  // namespace orrery::nn
