#include "nn/slots.h"

#include <cmath>

#include "engine/ops.h"

namespace orrery::nn {
namespace {

struct Settings {
  int64_t count = 0;
  bool split = false, scaled = true;
  template <class V>
  void visit(V& v) {
    v("N", count, "slots per key/value head", at_least(1));
    v("split", split, "context and slots are read on their own, each with its own weights");
    v("scaled", scaled, "stored divided by sqrt(head size) and sqrt(N)");
  }
};

Settings settings_of_spec(const Spec& spec) {
  Settings settings;
  if (spec.name == "slots") {
    read_settings(spec, settings);
    check(settings.count >= 1, "persistent: slots needs N, at least 1: slots(64), not ", spec);
  } else {
    check(spec.items.empty(), "persistent: '", spec, "' is neither none, nor a number of slots, nor slots(N, ...)");
    settings.count = parse_whole_number("persistent", spec.name);
    check(settings.count >= 1, "persistent: N = ", settings.count, "; at least 1 is needed, or persistent=none");
  }
  return settings;
}

}  // namespace

Slots::Slots(const Spec& spec, int64_t key_heads, int64_t head_size) {
  const Settings settings = settings_of_spec(spec);
  count_ = settings.count, split_ = settings.split, scaled_ = settings.scaled;
  const Shape shape{count_, key_heads, head_size};
  key_ = Parameter(shape, normal(scaled_ ? 1 / std::sqrt(static_cast<double>(head_size)) : 1));
  value_ = Parameter(shape, normal(scaled_ ? 1 / std::sqrt(static_cast<double>(count_)) : 1));
}

SlotKeysAndValues Slots::use() const {
  if (!scaled_) return {key_.value, value_.value};
  return {key_.value * std::sqrt(static_cast<double>(key_.value.size(2))),
          value_.value * std::sqrt(static_cast<double>(count_))};
}

void Slots::visit(Visitor& v) {
  v("key", key_);
  v("value", value_);
}

}  // namespace orrery::nn
