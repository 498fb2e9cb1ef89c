// Converts tensors from source names and layouts to target ones, and back.
#include <algorithm>
#include <set>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "engine/system/machine_memory.h"
#include "models/interop/base/weight_format.h"

namespace orrery::models {
namespace {

std::vector<int> inverse_of(const std::vector<int>& axes) {
  std::vector<int> inverse(axes.size());
  for (size_t i = 0; i < axes.size(); ++i) inverse[static_cast<size_t>(axes[i])] = static_cast<int>(i);
  return inverse;
}

int64_t rows_of(const TensorMapping& mapping, size_t index, const Shape& whole) {
  return mapping.rows.empty() ? whole[0] : mapping.rows[index];
}
Shape source_shape(const TensorMapping& mapping, size_t index, const Shape& whole) {
  const int64_t rows = rows_of(mapping, index, whole);
  const Shape target_shape = whole.with(0, rows);
  Shape source;
  if (mapping.squeeze) source.append(1);
  if (whole.rank() == 1 || mapping.axes.empty()) {
    for (const int64_t size : target_shape) source.append(size);
    return source;
  }
  for (const int axis : inverse_of(mapping.axes)) source.append(target_shape[axis]);
  return source;
}

// Moves rows 2i and 2i + 1 of each head, which orrery rotates together, to rows i and i + size / 2.
Tensor with_halves_apart(const Tensor& x, int64_t head_size) {
  std::vector<int32_t> order;
  for (int64_t head = 0; head < x.size(0); head += head_size)
    for (const int64_t half : {0, 1})
      for (int64_t i = half; i < head_size; i += 2) order.push_back(static_cast<int32_t>(head + i));
  const Tensor rows = x.shape().rank() == 1 ? x.reshape(Shape{x.size(0), 1}) : x;
  return index_select(rows, Tensor::from(Shape{static_cast<int64_t>(order.size())}, order)).reshape(x.shape());
}

std::string how(const TensorMapping& mapping) {
  std::string words = mapping.sources.size() > 1 ? "stacked" : "";
  if (!mapping.axes.empty()) words += words.empty() ? "transposed" : ", transposed";
  return words;
}

std::map<std::string, Tensor> parameters_by_path(nn::Module& model) {
  std::map<std::string, Tensor> all;
  for (const nn::NamedParameter& p : nn::parameters_of(model)) all.emplace(p.path, p.parameter->value.detach());
  return all;
}

using Stored = std::map<std::string, const StoredTensor*>;

// Returns the source tensor of one segment of the target, or null if the segment is zeros. Checks
// name, dtype and shape in the header before any values are read.
const StoredTensor* find_source(const Stored& stored, const TensorMapping& mapping, size_t index, const Shape& whole) {
  const std::string& name = mapping.sources[index];
  const auto found = stored.find(name);
  if (found == stored.end() && mapping.optional) return nullptr;
  check(found != stored.end(), "import: tensor '", name, "' is missing, but '", mapping.target,
        "' requires it; check that the weights are complete and match the configuration");
  const StoredTensor& x = *found->second;
  const std::optional<Dtype> dtype = dtype_of_name(x.dtype);
  check(dtype && is_floating(*dtype), "import: '", name, "' has dtype ", x.dtype,
        "; weights must be F32, F64, F16 or BF16");
  const Shape wanted = source_shape(mapping, index, whole);
  check(std::equal(x.shape.begin(), x.shape.end(), wanted.begin(), wanted.end()), "import: '", name, "' has shape ",
        shape_text(x), "; the configuration requires ", wanted);
  return &x;
}

// Returns the segment's values as f32.
Tensor values_of(const StoredTensor* source, const TensorMapping& mapping, size_t index, const Shape& whole) {
  const Shape target = whole.with(0, rows_of(mapping, index, whole));
  if (!source) return Tensor::zeros(target);
  const StoredTensor read = with_values(*source);
  check(range_of(read).not_finite == 0, "import: '", read.name, "' has NaN or infinite values; weights must be finite");
  const Tensor numbers = read.tensor.to(Dtype::f32);
  return whole.rank() > 1 && !mapping.axes.empty() ? permute(numbers, mapping.axes) : numbers.reshape(target);
}

}  // namespace

std::vector<NamedTensor> target_tensors(const ImportedModel& from, nn::Module& model, ImportReport& report) {
  const NoGrad guard;
  Stored stored;
  for (const StoredTensor& each : from.tensors) stored.emplace(each.name, &each);
  const std::map<std::string, Tensor> wanted = parameters_by_path(model);
  std::set<std::string> used, filled;
  std::vector<std::pair<const TensorMapping*, std::vector<const StoredTensor*>>> chosen;
  double numbers = 0;
  for (const TensorMapping& mapping : from.mappings) {
    const auto to = wanted.find(mapping.target);
    if (to == wanted.end()) continue;  // a component that the settings leave out
    auto& tensors = chosen.emplace_back(&mapping, std::vector<const StoredTensor*>()).second;
    for (size_t i = 0; i < mapping.sources.size(); ++i) {
      tensors.push_back(find_source(stored, mapping, i, to->second.shape()));
      used.insert(mapping.sources[i]);
    }
    numbers += static_cast<double>(to->second.numel());
    filled.insert(mapping.target);
    report.mapped.push_back({mapping.target, join(mapping.sources), how(mapping)});
  }
  for (const auto& [path, tensor] : wanted)
    check(filled.contains(path), "import: no tensor provides '", path,
          "', a parameter of the model; check the configuration");
  check_memory("import: the weights", numbers * sizeof(float), out_of_memory_advice());
  std::vector<NamedTensor> result;
  for (const auto& [mapping, source] : chosen) {
    const Shape& whole = wanted.at(mapping->target).shape();
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < source.size(); ++i) tensors.push_back(values_of(source[i], *mapping, i, whole));
    result.push_back({mapping->target, tensors.size() == 1 ? tensors[0] : concatenate(tensors, 0)});
  }
  std::vector<std::string> unread;
  int64_t numbers_unread = 0;
  for (const StoredTensor& each : from.tensors) {
    if (used.contains(each.name)) continue;
    const auto why = from.ignored.find(each.name);
    const bool known = why != from.ignored.end();
    report.unused.emplace_back(each.name, known ? why->second : "not used by this model");
    if (!known) unread.push_back(each.name), numbers_unread += count_of(each);
  }
  if (!unread.empty())
    report.notes.push_back(text("unused tensors: ", unread.size(), ", with ", numbers_unread, " values; the first is ",
                                unread[0],
                                "; if the model needs them, its configuration has too few layers or lacks biases"));
  return result;
}

std::vector<NamedTensor> source_tensors(const std::vector<TensorMapping>& mappings, nn::Module& model) {
  const NoGrad guard;
  const std::map<std::string, Tensor> target = parameters_by_path(model);
  std::set<std::string> written;
  std::vector<NamedTensor> result;
  for (const TensorMapping& mapping : mappings) {
    const auto found = target.find(mapping.target);
    check(found != target.end() || mapping.zeros, "export: the model lacks '", mapping.target,
          "', which the format requires; choose another --format");
    const Tensor whole = found == target.end() ? Tensor::zeros(*mapping.zeros) : found->second.to(Device::cpu);
    written.insert(mapping.target);
    int64_t begin = 0;
    for (size_t i = 0; i < mapping.sources.size(); ++i) {
      const int64_t end = begin + rows_of(mapping, i, whole.shape());
      Tensor rows = whole.slice(begin, end).to(Dtype::f32);
      const bool reordered = mapping.interleaved_head > 0 && i + 1 < mapping.sources.size();
      if (reordered) rows = with_halves_apart(rows, mapping.interleaved_head);
      const bool permuted = rows.shape().rank() > 1 && !mapping.axes.empty();
      result.push_back({mapping.sources[i], permuted ? permute(rows, inverse_of(mapping.axes))
                                                     : rows.reshape(source_shape(mapping, i, whole.shape()))});
      begin = end;
    }
  }
  for (const auto& [path, tensor] : target)
    check(written.contains(path), "export: the format does not support the model's '", path,
          "'; choose another --format");
  return result;
}

}  // namespace orrery::models
