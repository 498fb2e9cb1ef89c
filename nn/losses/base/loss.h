// Losses.  Each returns one number, (), of the dtype of its first argument, f32 for bf16.
#pragma once

#include <string_view>

#include "engine/settings/registry.h"
#include "engine/tensor/tensor.h"

namespace orrery::nn {

struct LossInfo {
  std::string_view name, formula, source, parameters = {}, keeps = {};  // as in nn/base/entry.h
  // Not empty: a layer adds this loss to a pass that wants it (Pass::add_loss), and the setting losses.NAME of a run
  // weights it; what it weights, for the help.
  std::string_view weight_of = {};
};
Registry<LossInfo>& losses();

// `info` is a LossInfo of the loss's file.
#define REGISTER_LOSS(info) \
  [[maybe_unused]] static const bool registered_##info = (::orrery::nn::losses().add(info), true)

// Mean over the targets of  ln sum_v exp(logits_v) - sum_v q_v logits_v, in nats, with q_v = 1 - smoothing at the
// target and smoothing / V more everywhere.  logits (..., V), targets (...) i32; a negative target leaves its row out
// of the sum and of the mean; without any target the loss and its gradient are 0.  A target of V or more is an Error;
// on a device, where targets are not checked, it makes the loss NaN.  The logits' buffer is reused for their gradient
// if the caller has let go of it: pass them as a temporary.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, double smoothing = 0);

// Mean over the rows of the sum over classes of  ln(1 + exp(z)) - y z, in nats.  logits z and targets y (..., V), y
// between 0 and 1.
Tensor sigmoid_cross_entropy(const Tensor& logits, const Tensor& targets);

// limit times the mean of the relative spans z' (any shape), of one layer: what a head's span costs.  Spans where
// `counted` (of a shape that broadcasts to theirs) is 0 are left out: those of padding.
Tensor span_penalty(const Tensor& spans, double limit, const Tensor& counted = {});

// Mean over the rows with S > 0 of |ln S|, S (any shape) being the sums of attention rows; 0 if there is no such row.
Tensor normalization_loss(const Tensor& sums);

// Mean of max(H - share ln n, 0) over the rows that see n >= 1 keys: H (B, H, T) entropies, `visible` their n, of
// the same dtype and of a shape that broadcasts to theirs, such as (T).  A row with n = 0 is left out.
Tensor entropy_margin_loss(const Tensor& entropies, const Tensor& visible, double share = 0.7);

struct EntropyRegularizer {
  double tolerance = 0.2;  // m: a share of the ceiling within which nothing is paid
  bool causal = true;      // row i sees i keys, from 1; otherwise each sees T
  Tensor visible = {};     // (B or 1, 1, T): how many keys each row sees, 0 for rows that are left out; before `causal`
};
// Mean over heads of (E - theta E_max)^2 where |E - theta E_max| > m E_max; E the mean of the entropies (B, H, T) over
// batch and rows, E_max that of ln n, n the keys that a row sees; theta (H) the learned threshold.
Tensor entropy_regularizer(const Tensor& entropies, const Tensor& threshold, const EntropyRegularizer& settings = {});
// scores (B, H, T, K) / temperature, (H) or (H, T), learned: what the regularizer moves entropies with.
Tensor tempered(const Tensor& scores, const Tensor& temperature);

}  // namespace orrery::nn
