#include "models/inspection/base/units.h"

#include <algorithm>

#include "engine/ops/ops.h"
#include "engine/types/usage_error.h"

namespace orrery::models {

// Takes a hook value of a batch of one as (heads, positions, columns): hidden units (1, T, N),
// slots (1, H, T, N), or attention weights (1, H, T, keys + N).
UnitGroup UnitGroup::of(const std::string& path, const std::string& name, const Tensor& value, int64_t keys) {
  UnitGroup group;
  group.path = path, group.name = path + "." + name;
  group.slots_ = value.shape().rank() == 4;
  group.heads = group.slots_ ? value.size(1) : 1;
  group.first_ = name == "weights" ? std::min(keys, value.size(-1)) : 0;
  const int64_t columns = value.size(-1), count = columns - group.first_,
                positions = value.numel() / columns / group.heads;
  const Tensor own = slice(to_cpu(value).reshape(Shape{group.heads, positions, columns}), 2, group.first_, columns);
  group.values = permute(own, {1, 0, 2}).reshape(Shape{positions, group.heads * count});
  return group;
}

std::string UnitGroup::unit(int64_t index) const {
  const int64_t per_head = units() / heads;
  if (!slots_) return text("unit ", index);
  return heads == 1 ? text("slot ", index) : text("head ", index / per_head, " slot ", index % per_head);
}

void UnitGroup::check_unit(int64_t index) const {
  check_usage(index < units(), "inspect: --slot=", index, " is out of range; ", path, " has units from 0 to ",
              units() - 1);
}

ValueEdit UnitGroup::set(int64_t unit, double value) const {
  const int64_t per_head = units() / heads, column = first_ + unit % per_head;
  ValueEdit edit{.hook = name, .region = {{-1, column, column + 1}}, .number = value};
  if (slots_) edit.region.push_back({1, unit / per_head, unit / per_head + 1});
  return edit;
}
ValueEdit UnitGroup::set_all(double value) const {
  return {.hook = name, .region = {{-1, first_, first_ + units() / heads}}, .number = value};
}

std::vector<UnitGroup> capture_units(const InspectedExample& example) {
  std::vector<std::string> patterns = {"*.hidden"};
  const std::string key = ".slots.key";  // only these attentions should compute their weights
  for (const nn::NamedParameter& p : nn::parameters_of(example.model()))
    if (p.path.ends_with(key)) patterns.push_back(p.path.substr(0, p.path.size() - key.size()) + ".weights");
  std::vector<UnitGroup> all;
  capture_values(example, patterns, [&](const std::string& path, const std::string& name, const Tensor& value) {
    const UnitGroup group = UnitGroup::of(path, name, value, static_cast<int64_t>(example.key_labels(path).size()));
    if (group.units() > 0) all.push_back(group);
  });
  return all;
}

}  // namespace orrery::models
