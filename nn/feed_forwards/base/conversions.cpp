#include "nn/feed_forwards/base/conversions.h"

#include <cmath>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "engine/types/check.h"
#include "nn/attentions/base/slots.h"

namespace orrery::nn {
namespace {

std::string function_of(const SlotWeights& weights) { return weights.function ? weights.function->spec() : "softmax"; }

// x with one more channel, which is 1 everywhere
Tensor with_one(const Tensor& x) { return concatenate({x, Tensor::full_like(x, x.shape().with(-1, 1), 1)}, -1); }

// Returns the bias for a layer whose own bias is `target`; undefined if that layer has none.
Tensor copied_bias(const char* name, const Tensor& source, const Tensor& target) {
  if (source && target) return source;
  if (target) return Tensor::zeros_like(target);
  if (source)
    check(max(abs(source), 0).item() == 0, "copy_slots: the ", name,
          " have biases, but the other layer has none; make it with biases, or set them to 0");
  return {};
}

}  // namespace

Tensor as_slots(const Tensor& matrix) { return matrix.reshape(Shape{matrix.size(0), 1, matrix.size(1)}); }
Tensor as_matrix(const Tensor& slots) { return slots.reshape(Shape{slots.size(0), slots.size(2)}); }

std::vector<Prediction> SlotFeedForward::predicted(const InputStats& stats) const {
  SlotWeights w;
  try {
    w = slot_weights();
  } catch (const Error&) {  // a setting puts another operation between x and y
    return {};
  }
  const NoGrad guard;
  const double v = w.function ? stats.mean_square : stats.row_variance,
               denominator = mean(w.value * w.value).to(Dtype::f64).item();
  const auto slots = static_cast<double>(w.key.size(0));
  const std::vector<double> own = w.parameters ? w.parameters.to_vector() : std::vector<double>();
  const double square = w.function ? mean_square(v, [&](double p) { return w.function->value(p, own); })
                                   : softmax_sum_of_squares(v, slots) / slots;
  return {{ratio::hidden, square / stats.mean_square, w.function ? "E[F(p)^2] / v" : "exp(v) / (N^2 v)", v},
          {ratio::slots, slots * square, w.function ? "N E[F(p)^2]" : "exp(v) / N", v, denominator}};
}
REGISTER_PREDICTION(SlotFeedForward);

SlotWeights slot_weights(const Sublayer& layer) {
  const SlotFeedForward* const feed_forward = dynamic_cast<const SlotFeedForward*>(&layer);
  check(feed_forward != nullptr, "slot_weights: this layer has no slots; use dense, memory or persistent");
  return feed_forward->slot_weights();
}

Tensor attention_over_slots(const Tensor& x, const SlotWeights& w) {
  const AttentionOptions options{.scale = w.scale};
  check((!w.key_bias && !w.value_bias) || w.key.size(1) == 1, "attention_over_slots: biases need one head, not ",
        w.key.size(1));
  Tensor y;
  if (w.key_bias) {
    const Tensor bias = (w.key_bias / w.scale).reshape(Shape{w.key.size(0), 1, 1});
    y = attend_to_slots(with_one(x), {concatenate({w.key, bias}, -1), w.value}, options, w.function, w.parameters);
  } else {
    y = attend_to_slots(x, {w.key, w.value}, options, w.function, w.parameters);
  }
  return w.value_bias ? y + w.value_bias : y;
}

void copy_slots(const Sublayer& from, Sublayer& to) {
  const NoGrad guard;
  SlotWeights source = slot_weights(from);
  const SlotWeights target = slot_weights(to);
  check(function_of(source) == function_of(target), "copy_slots: slots with function ", function_of(source),
        " do not fit a layer with ", function_of(target), "; both must have the same function");
  check(source.key.shape() == target.key.shape() && source.value.shape() == target.value.shape(),
        "copy_slots: ", source.key.shape(), " slots do not fit ", target.key.shape(),
        "; (slots, heads, channels of a head) must be the same in both");
  source.key_bias = copied_bias("keys", source.key_bias, target.key_bias);
  source.value_bias = copied_bias("values", source.value_bias, target.value_bias);
  source.key = source.key * (source.scale / target.scale);
  source.scale = target.scale;
  dynamic_cast<SlotFeedForward&>(to).store(source);
}

}  // namespace orrery::nn
