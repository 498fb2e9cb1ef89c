// Losses. Each returns one number, (), in the dtype of its first argument, f32 for bf16.
#pragma once

#include <string_view>

#include "engine/settings/registry.h"
#include "engine/tensor/tensor.h"

namespace orrery::nn {

struct LossInfo {
  std::string_view name, formula, source, parameters = {}, saves = {};  // as in nn/base/entry.h
  // Weighted quantity, for the help. If set, a layer adds this loss on request
  // (ForwardPass::add_loss) and the setting losses.NAME of a run is its weight.
  std::string_view weight_of = {};
};
Registry<LossInfo>& losses();

// Registers `info`, a LossInfo.
#define REGISTER_LOSS(info) \
  [[maybe_unused]] static const bool registered_##info = (::orrery::nn::losses().add(info), true)

// Returns the mean over targets of ln sum_v exp(logits_v) - sum_v q_v logits_v, in nats, with
// q_v = 1 - smoothing at the target plus smoothing / V everywhere. logits (..., V), targets (...)
// i32. The mean leaves out rows with negative targets; without targets loss and gradient are 0.
// Targets >= V throw, but give NaN on a device, which does not check them. The logits' buffer is
// reused for their gradient if the caller does not own it; pass a temporary.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, double smoothing = 0);
// Returns the cross-entropy of each row, 0 without a target. On the CPU, without gradients.
Tensor cross_entropy_of_rows(const Tensor& logits, const Tensor& targets);

// Returns the mean over rows of the sum over classes of ln(1 + exp(z)) - y z, in nats. logits z and
// targets y (..., V), y between 0 and 1.
Tensor sigmoid_cross_entropy(const Tensor& logits, const Tensor& targets);

// Returns limit times the mean of relative spans z' (any shape) of a layer, the cost of its spans.
// The mean leaves out spans with `counted` = 0 (broadcast to their shape), such as padding.
Tensor span_penalty(const Tensor& spans, double limit, const Tensor& counted = {});

// Returns the mean of |ln S| over rows with S > 0, else 0; S (any shape): attention row sums.
Tensor normalization_loss(const Tensor& sums);

// Returns the mean of max(H - fraction ln n, 0) over rows with n >= 1 visible keys. H (B, H, T):
// entropies; `visible`: n, of the same dtype and a broadcastable shape such as (T).
Tensor entropy_margin_loss(const Tensor& entropies, const Tensor& visible, double fraction = 0.7);

struct EntropyRegularizer {
  double tolerance = 0.2;  // m: no penalty within this fraction of the ceiling
  bool causal = true;      // row i attends to i keys, from 1; otherwise to T
  Tensor visible = {};     // (B or 1, 1, T): visible keys per row, 0: not in the means; overrides `causal`
};
// Returns the mean over heads of (E - theta E_max)^2 where |E - theta E_max| > m E_max. E, E_max:
// means over rows of `entropies` (B, H, T) and of ln n, n visible keys; theta (H): `threshold`.
Tensor entropy_regularizer(const Tensor& entropies, const Tensor& threshold, const EntropyRegularizer& settings = {});
// Returns scores (B, H, T, K) / temperature, (H) or (H, T), learned: a way to change entropies.
Tensor tempered(const Tensor& scores, const Tensor& temperature);

}  // namespace orrery::nn
