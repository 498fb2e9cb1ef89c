// Converts tensors from source names and layouts to target ones, and back.
#include <algorithm>
#include <set>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "engine/system/machine_memory.h"
#include "models/exchange/base/exchange.h"

namespace orrery::models {
namespace {

std::vector<int> inverse_of(const std::vector<int>& axes) {
  std::vector<int> inverse(axes.size());
  for (size_t i = 0; i < axes.size(); ++i) inverse[static_cast<size_t>(axes[i])] = static_cast<int>(i);
  return inverse;
}

int64_t rows_of(const TensorPlace& place, size_t part, const Shape& whole) {
  return place.rows.empty() ? whole[0] : place.rows[part];
}
Shape shape_of_part(const TensorPlace& place, size_t part, const Shape& whole) {
  const int64_t rows = rows_of(place, part, whole);
  const Shape part_of_ours = whole.with(0, rows);
  Shape theirs;
  if (place.within_one) theirs.append(1);
  if (whole.rank() == 1 || place.axes.empty()) {
    for (const int64_t size : part_of_ours) theirs.append(size);
    return theirs;
  }
  for (const int axis : inverse_of(place.axes)) theirs.append(part_of_ours[axis]);
  return theirs;
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

std::string how(const TensorPlace& place) {
  std::string words = place.theirs.size() > 1 ? "stacked" : "";
  if (!place.axes.empty()) words += words.empty() ? "transposed" : ", transposed";
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
const StoredTensor* part_of(const Stored& stored, const TensorPlace& place, size_t part, const Shape& whole) {
  const std::string& name = place.theirs[part];
  const auto found = stored.find(name);
  if (found == stored.end() && place.may_lack) return nullptr;
  check(found != stored.end(), "import: tensor '", name, "' is missing, but '", place.ours,
        "' requires it; check that the weights are complete and match the configuration");
  const StoredTensor& x = *found->second;
  const std::optional<Dtype> dtype = dtype_of_word(x.dtype);
  check(dtype && is_floating(*dtype), "import: '", name, "' has dtype ", x.dtype,
        "; weights must be F32, F64, F16 or BF16");
  const Shape wanted = shape_of_part(place, part, whole);
  check(std::equal(x.shape.begin(), x.shape.end(), wanted.begin(), wanted.end()), "import: '", name, "' has shape ",
        shape_text(x), "; the configuration requires ", wanted);
  return &x;
}

// Returns the segment's values as f32.
Tensor numbers_of(const StoredTensor* theirs, const TensorPlace& place, size_t part, const Shape& whole) {
  const Shape ours = whole.with(0, rows_of(place, part, whole));
  if (!theirs) return Tensor::zeros(ours);
  const StoredTensor read = with_numbers(*theirs);
  check(range_of(read).not_finite == 0, "import: '", read.name, "' has NaN or infinite values; weights must be finite");
  const Tensor numbers = read.tensor.to(Dtype::f32);
  return whole.rank() > 1 && !place.axes.empty() ? permute(numbers, place.axes) : numbers.reshape(ours);
}

}  // namespace

std::vector<NamedTensor> placed_tensors(const ImportedModel& from, nn::Module& model, ImportReport& report) {
  const NoGrad guard;
  Stored stored;
  for (const StoredTensor& each : from.tensors) stored.emplace(each.name, &each);
  const std::map<std::string, Tensor> wanted = parameters_by_path(model);
  std::set<std::string> used, filled;
  std::vector<std::pair<const TensorPlace*, std::vector<const StoredTensor*>>> chosen;
  double numbers = 0;
  for (const TensorPlace& place : from.places) {
    const auto to = wanted.find(place.ours);
    if (to == wanted.end()) continue;  // a component that the settings leave out
    auto& parts = chosen.emplace_back(&place, std::vector<const StoredTensor*>()).second;
    for (size_t i = 0; i < place.theirs.size(); ++i) {
      parts.push_back(part_of(stored, place, i, to->second.shape()));
      used.insert(place.theirs[i]);
    }
    numbers += static_cast<double>(to->second.numel());
    filled.insert(place.ours);
    report.placed.push_back({place.ours, join(place.theirs), how(place)});
  }
  for (const auto& [path, tensor] : wanted)
    check(filled.contains(path), "import: no tensor provides '", path,
          "', a parameter of the model; check the configuration");
  check_memory("import: the weights", numbers * sizeof(float), way_out_of_memory());
  std::vector<NamedTensor> result;
  for (const auto& [place, theirs] : chosen) {
    const Shape& whole = wanted.at(place->ours).shape();
    std::vector<Tensor> parts;
    for (size_t i = 0; i < theirs.size(); ++i) parts.push_back(numbers_of(theirs[i], *place, i, whole));
    result.push_back({place->ours, parts.size() == 1 ? parts[0] : concatenate(parts, 0)});
  }
  std::vector<std::string> unread;
  int64_t numbers_unread = 0;
  for (const StoredTensor& each : from.tensors) {
    if (used.contains(each.name)) continue;
    const auto why = from.known_rest.find(each.name);
    const bool known = why != from.known_rest.end();
    report.left.emplace_back(each.name, known ? why->second : "not used by this model");
    if (!known) unread.push_back(each.name), numbers_unread += count_of(each);
  }
  if (!unread.empty())
    report.notes.push_back(text("unused tensors: ", unread.size(), ", with ", numbers_unread, " values; the first is ",
                                unread[0],
                                "; if the model needs them, its configuration has too few layers or lacks biases"));
  return result;
}

std::vector<NamedTensor> tensors_for(const std::vector<TensorPlace>& places, nn::Module& model) {
  const NoGrad guard;
  const std::map<std::string, Tensor> ours = parameters_by_path(model);
  std::set<std::string> written;
  std::vector<NamedTensor> result;
  for (const TensorPlace& place : places) {
    const auto found = ours.find(place.ours);
    check(found != ours.end() || place.zeros, "export: the model lacks '", place.ours,
          "', which the format requires; choose another --format");
    const Tensor whole = found == ours.end() ? Tensor::zeros(*place.zeros) : found->second.to(Device::cpu);
    written.insert(place.ours);
    int64_t begin = 0;
    for (size_t i = 0; i < place.theirs.size(); ++i) {
      const int64_t end = begin + rows_of(place, i, whole.shape());
      Tensor part = whole.slice(begin, end).to(Dtype::f32);
      const bool turned = place.interleaved_head > 0 && i + 1 < place.theirs.size();
      if (turned) part = with_halves_apart(part, place.interleaved_head);
      const bool permuted = part.shape().rank() > 1 && !place.axes.empty();
      result.push_back({place.theirs[i], permuted ? permute(part, inverse_of(place.axes))
                                                  : part.reshape(shape_of_part(place, i, whole.shape()))});
      begin = end;
    }
  }
  for (const auto& [path, tensor] : ours)
    check(written.contains(path), "export: the format does not support the model's '", path,
          "'; choose another --format");
  return result;
}

}  // namespace orrery::models
