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

// Returns the bias for a layer whose own bias is `place`; undefined if that layer has none.
Tensor carried(const char* which, const Tensor& given, const Tensor& place) {
  if (given && place) return given;
  if (place) return Tensor::zeros_like(place);
  if (given)
    check(max(absolute(given), 0).item() == 0, "copy_slots: the ", which,
          " have biases, but the other layer has none; make it with biases, or set them to 0");
  return {};
}

}  // namespace

Tensor as_slots(const Tensor& matrix) { return matrix.reshape(Shape{matrix.size(0), 1, matrix.size(1)}); }
Tensor as_matrix(const Tensor& slots) { return slots.reshape(Shape{slots.size(0), slots.size(2)}); }

std::vector<Prediction> SlotReader::predicted(const Given& given) const {
  SlotWeights w;
  try {
    w = slot_weights();
  } catch (const Error&) {  // a setting puts another operation between x and y
    return {};
  }
  const NoGrad guard;
  const double v = w.function ? given.mean_square : given.row_variance,
               below = mean(w.value * w.value).to(Dtype::f64).item();
  const auto slots = static_cast<double>(w.key.size(0));
  const double square = w.function ? mean_square(v, [&](double p) { return w.function->value(p); })
                                   : softmax_sum_of_squares(v, slots) / slots;
  return {{ratio::hidden, square / given.mean_square, w.function ? "E[F(p)^2] / v" : "exp(v) / (N^2 v)", v},
          {ratio::slots, slots * square, w.function ? "N E[F(p)^2]" : "exp(v) / N", v, below}};
}
REGISTER_PREDICTION(SlotReader);

SlotWeights slot_weights(const Sublayer& layer) {
  const SlotReader* const reader = dynamic_cast<const SlotReader*>(&layer);
  check(reader != nullptr, "slot_weights: this layer has no slots; use dense, memory or persistent");
  return reader->slot_weights();
}

Tensor attention_over_slots(const Tensor& x, const SlotWeights& w) {
  const AttentionOptions options{.scale = w.scale};
  check((!w.key_bias && !w.value_bias) || w.key.size(1) == 1, "attention_over_slots: biases need one head, not ",
        w.key.size(1));
  Tensor y;
  if (w.key_bias) {
    const Tensor bias = (w.key_bias / w.scale).reshape(Shape{w.key.size(0), 1, 1});
    y = read_slots(with_one(x), {concatenate({w.key, bias}, -1), w.value}, options, w.function);
  } else {
    y = read_slots(x, {w.key, w.value}, options, w.function);
  }
  return w.value_bias ? y + w.value_bias : y;
}

void copy_slots(const Sublayer& from, Sublayer& to) {
  const NoGrad guard;
  SlotWeights given = slot_weights(from);
  const SlotWeights place = slot_weights(to);
  check(function_of(given) == function_of(place), "copy_slots: slots with function ", function_of(given),
        " do not fit a layer with ", function_of(place), "; both must have the same function");
  check(given.key.shape() == place.key.shape() && given.value.shape() == place.value.shape(),
        "copy_slots: ", given.key.shape(), " slots do not fit ", place.key.shape(),
        "; (slots, heads, channels of a head) must be the same in both");
  given.key_bias = carried("keys", given.key_bias, place.key_bias);
  given.value_bias = carried("values", given.value_bias, place.value_bias);
  given.key = given.key * (given.scale / place.scale);
  given.scale = place.scale;
  dynamic_cast<SlotReader&>(to).store(given);
}

}  // namespace orrery::nn
