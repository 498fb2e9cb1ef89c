#include "nn/feed_forwards/base/hidden.h"

#include <optional>

#include "engine/autograd/autograd.h"
#include "engine/autograd/hooks.h"
#include "engine/ops/ops.h"
#include "nn/attentions/base/fused.h"
#include "nn/layers/linear.h"

namespace orrery::nn {

namespace {

// Passes hidden() to hooks; it passes pre_activation itself. Empty unless a hook may replace one.
Tensor hooked(std::string_view path, const std::function<Tensor()>& hidden) {
  if (!is_hooked(path, "pre_activation") && !is_hooked(path, "hidden")) return {};
  const bool replaced = has_replacement(path, "pre_activation") || has_replacement(path, "hidden");
  std::optional<NoGrad> guard;
  if (!replaced) guard.emplace();
  const Tensor a = hook(path, "hidden", hidden());
  return replaced ? a : Tensor();
}

}  // namespace

Tensor hooked_hidden(std::string_view path, const std::function<Tensor()>& before,
                     const std::function<Tensor(const Tensor& z)>& after) {
  return hooked(path, [&] { return after(hook(path, "pre_activation", before())); });
}

Tensor hooked_dense(const Module& layer, const Tensor& x, const PointwiseFunction& function, const DenseWeights& w,
                    const Tensor& residual) {
  const Tensor hidden = hooked_hidden(
      layer.path(), [&] { return linear(x, w.input, w.input_bias); }, [&](const Tensor& z) { return function(z); });
  if (hidden) return linear(hidden, w.output, w.output_bias, residual);
  return dense_feed_forward(x, function.activation(), w.input, w.input_bias, w.output, w.output_bias, residual,
                            function.parameters());
}

Tensor attend_to_hooked_slots(std::string_view path, const Tensor& x, const SlotKeysAndValues& slots,
                              const AttentionOptions& options) {
  const AttentionInputs alone = slot_inputs(x, slots);
  AttentionOptions o = options;
  o.mask.causal = false;
  o.hooked_path = path, o.hooked_name = "pre_activation";
  const Tensor weights = hooked(path, [&] { return attention_weights(alone, o, {}); });
  return weights
             ? apply_weights(weights, alone, o).reshape(x.shape().with(-1, slots.value.size(1) * slots.value.size(2)))
             : attend_to_slots(x, slots, options);
}

}  // namespace orrery::nn
