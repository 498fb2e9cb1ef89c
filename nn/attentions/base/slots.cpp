#include "nn/attentions/base/slots.h"

#include <cmath>

#include "engine/ops/ops.h"

namespace orrery::nn {
namespace {

struct Settings {
  int64_t count = 0;
  bool split = false, scaled = true;
  template <class V>
  void visit(V& v) {
    v("N", count, "number of slots per key/value head", between(1, 65536));
    v("split", split, "attend to context and slots separately, each with its own weights");
    v("scaled", scaled, "store keys divided by sqrt(head size), values by sqrt(N)");
  }
};

Settings settings_of_spec(const Spec& spec) {
  Settings settings;
  if (spec.name == "slots") {
    read_settings(spec, settings);
    check(settings.count >= 1, "persistent: slots needs N, at least 1, as in slots(64), not ", spec);
  } else {
    check(spec.items.empty(), "persistent: '", spec, "' is invalid; use none, a number of slots or slots(N, ...)");
    settings.count = parse_whole_number("persistent", spec.name);
    check(settings.count >= 1, "persistent: N (", settings.count,
          ") must be at least 1; use persistent=none for no slots");
    check(settings.count <= 65536, "persistent: N (", settings.count, ") must be at most 65536");
  }
  return settings;
}

}  // namespace

Info slots_setting() {
  return {.name = "slots",
          .formula = "persistent=N or slots(N): keys K_n and values V_n in addition to the context",
          .source = "Sukhbaatar et al. 2019, arXiv:1907.01470",
          .parameters =
              "K N(0, 1) / sqrt(D), V N(0, 1) / sqrt(N), multiplied by sqrt(D), sqrt(N) in use; N(0, 1) with scaled=no",
          .saves = "K, V as used",
          .ranges = settings_without_values<Settings>};
}

Spec resolved_slots(const Spec& spec) {
  return spec.name == "none" ? spec : make_spec("slots", settings_of_spec(spec));
}

Slots::Slots(const Spec& spec, int64_t kv_heads, int64_t head_size) {
  const Settings settings = settings_of_spec(spec);
  count_ = settings.count, split_ = settings.split, scaled_ = settings.scaled;
  const Shape shape{count_, kv_heads, head_size};
  key_ = Parameter(shape, normal(scaled_ ? 1 / std::sqrt(static_cast<double>(head_size)) : 1));
  value_ = Parameter(shape, normal(scaled_ ? 1 / std::sqrt(static_cast<double>(count_)) : 1));
}

SlotKeysAndValues Slots::keys_and_values() const {
  if (!scaled_) return {key_.value, value_.value};
  return {key_.value * std::sqrt(static_cast<double>(key_.value.size(2))),
          value_.value * std::sqrt(static_cast<double>(count_))};
}

void Slots::store(const SlotKeysAndValues& used) {
  const double size = static_cast<double>(key_.value.size(2)), count = static_cast<double>(count_);
  key_.value.copy_from(scaled_ ? used.key.detach() / std::sqrt(size) : used.key);
  value_.value.copy_from(scaled_ ? used.value.detach() / std::sqrt(count) : used.value);
}

void Slots::visit(Visitor& v) {
  v("key", key_);
  v("value", value_);
}

AttentionInputs slot_inputs_of(const Tensor& query, const SlotKeysAndValues& slots) {
  const int64_t batch = query.size(0);
  return {.query = query,
          .key = Tensor::empty_like(query, Shape{batch, 0, slots.key.size(1), slots.key.size(2)}),
          .value = Tensor::empty_like(query, Shape{batch, 0, slots.value.size(1), slots.value.size(2)}),
          .slot_key = slots.key,
          .slot_value = slots.value};
}
AttentionInputs slot_inputs(const Tensor& x, const SlotKeysAndValues& slots) {
  check_same_kind("attend_to_slots", x, slots.key);
  const int64_t heads = slots.key.size(1), size = slots.key.size(2);
  check(x.shape().rank() >= 1 && x.size(-1) == heads * size, "attend_to_slots: x ", x.shape(), " does not fit keys ",
        slots.key.shape(), "; its last axis must be heads times size, ", heads * size);
  const int64_t tokens = x.shape().rank() > 1 ? x.size(-2) : 1;
  const int64_t batch = tokens > 0 ? x.shape().rows() / tokens : 0;
  return slot_inputs_of(x.reshape(Shape{batch, tokens, heads, size}), slots);
}

Tensor attend_to_slots(const Tensor& x, const SlotKeysAndValues& slots, const AttentionOptions& options,
                       const std::optional<Activation>& function, const Tensor& parameters) {
  AttentionOptions full_options = options;
  full_options.mask.causal = false;
  AttentionInputs inputs = slot_inputs(x, slots);
  inputs.parameters = parameters;
  const Tensor o = attention(inputs, full_options, function).output;
  return o.reshape(x.shape().with(-1, o.size(2) * o.size(3)));
}

}  // namespace orrery::nn
