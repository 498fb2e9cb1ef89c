#include "models/inspection/base/memory_units.h"

#include <algorithm>

#include "engine/ops/ops.h"

namespace orrery::models {

// Takes a hook value of a batch of one as (heads, positions, columns): hidden units (1, T, N),
// slots (1, H, T, N), or attention weights (1, H, T, keys + N).
Memory Memory::of(const std::string& path, const std::string& name, const Tensor& value, int64_t keys) {
  Memory memory;
  memory.path = path, memory.name = path + "." + name;
  memory.slots_ = value.shape().rank() == 4;
  memory.heads = memory.slots_ ? value.size(1) : 1;
  memory.first_ = name == "weights" ? std::min(keys, value.size(-1)) : 0;
  const int64_t columns = value.size(-1), count = columns - memory.first_,
                places = value.numel() / columns / memory.heads;
  const Tensor own = slice(as_seen(value).reshape(Shape{memory.heads, places, columns}), 2, memory.first_, columns);
  memory.values = permute(own, {1, 0, 2}).reshape(Shape{places, memory.heads * count});
  return memory;
}

std::string Memory::unit(int64_t index) const {
  const int64_t of_head = units() / heads;
  if (!slots_) return text("unit ", index);
  return heads == 1 ? text("slot ", index) : text("head ", index / of_head, " slot ", index % of_head);
}

void Memory::check_unit(int64_t index) const {
  check(index < units(), "inspect: --slot=", index, " is out of range; ", path, " has units from 0 to ", units() - 1);
}

void Memory::set(const Shape& shape, std::vector<double>& numbers, int64_t unit, double value) const {
  const int64_t columns = shape[-1], places = shape.numel() / columns / heads, of_head = units() / heads;
  for (int64_t place = 0; place < places; ++place)
    numbers[static_cast<size_t>((unit / of_head * places + place) * columns + first_ + unit % of_head)] = value;
}
void Memory::set_all(const Shape& shape, std::vector<double>& numbers, double value) const {
  for (int64_t index = 0; index < units(); ++index) set(shape, numbers, index, value);
}

std::vector<Memory> see_memories(const Subject& subject) {
  std::vector<std::string> patterns = {"*.hidden"};
  const std::string key = ".slots.key";  // only these attentions should compute their weights
  for (const nn::NamedParameter& p : nn::parameters_of(subject.model()))
    if (p.path.ends_with(key)) patterns.push_back(p.path.substr(0, p.path.size() - key.size()) + ".weights");
  std::vector<Memory> all;
  see_values(subject, patterns, [&](const std::string& path, const std::string& name, const Tensor& value) {
    const Memory memory = Memory::of(path, name, value, static_cast<int64_t>(subject.keys(path).size()));
    if (memory.units() > 0) all.push_back(memory);
  });
  return all;
}

}  // namespace orrery::models
