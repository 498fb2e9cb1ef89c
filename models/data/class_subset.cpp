#include "models/data/class_subset.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "engine/ops/ops.h"
#include "engine/types/check.h"
#include "engine/types/format.h"
#include "models/data/lines.h"

namespace orrery::models {
namespace {

constexpr int32_t other = -1;

struct NamedLine {
  std::string name;
  int64_t number;  // from 1
};
std::vector<NamedLine> read_lines(const std::string& path) {
  std::vector<NamedLine> lines;
  int64_t number = 0;
  const std::string what = text("evaluate: among=", path), way_out = "give a file with one class per line";
  each_kept_line(path, what, way_out, [&](std::string_view line) {
    ++number;
    if (!line.empty()) lines.push_back({std::string(line), number});
  });
  return lines;
}

std::vector<std::string> numbers_below(size_t count) {
  std::vector<std::string> numbers;
  for (size_t i = 0; i < count; ++i) numbers.push_back(std::to_string(i));
  return numbers;
}

// Returns the label among `known` of a class of another set, by name or number; `other`: none.
int32_t label_among(const std::string& name, const std::vector<std::string>& known) {
  const auto matched = match_classes({name}, known);
  return matched && matched->by != MatchedClasses::By::order ? matched->labels[0] : other;
}

// Keeps the images whose label has a new one, and relabels them. Returns how many are dropped.
int64_t keep(Images& images, const std::vector<int32_t>& labels) {
  const auto size = static_cast<size_t>(images.pixels_per_image());
  size_t kept = 0;
  for (size_t i = 0; i < images.labels.size(); ++i) {
    const int32_t label = labels[static_cast<size_t>(images.labels[i])];
    if (label == other) continue;
    const auto from = images.pixels.begin() + static_cast<std::ptrdiff_t>(i * size);
    if (kept < i)
      std::copy(from, from + static_cast<std::ptrdiff_t>(size),
                images.pixels.begin() + static_cast<std::ptrdiff_t>(kept * size));
    images.labels[kept++] = label;
  }
  const auto left_out = static_cast<int64_t>(images.labels.size() - kept);
  images.labels.resize(kept), images.pixels.resize(kept * size);
  return left_out;
}

}  // namespace

ClassSubset::ClassSubset(const std::string& path, const std::vector<std::string>& known)
    : path_(path), known_(known), contained_(known.size()) {
  const std::vector<NamedLine> lines = read_lines(path);
  check(!lines.empty(), "evaluate: among=", path, " names no class; give one class of the model per line");
  std::map<std::string, std::vector<size_t>> named;
  for (size_t i = 0; i < known.size(); ++i) named[known[i]].push_back(i);
  std::vector<std::string> names;
  for (const NamedLine& line : lines) names.push_back(line.name);
  const bool any_name = std::any_of(names.begin(), names.end(), [&](const auto& name) { return named.contains(name); });
  const std::vector<std::string> numbers =
      !any_name && are_numbers(names) && !are_numbers(known) ? numbers_below(known.size()) : known;
  for (const NamedLine& line : lines) {
    std::vector<size_t> labels = named[line.name];
    if (const int32_t label = label_among(line.name, numbers); labels.empty() && label != other)
      labels = {static_cast<size_t>(label)};
    check(!labels.empty(), "evaluate: among=", path, ":", line.number, ": the model was never trained on a class '",
          line.name, "'; its classes are ", listed(known), "; give names of these, or their numbers from 0 to ",
          known.size() - 1);
    for (const size_t label : labels) contained_[label] = true;
  }
  count_ = std::count(contained_.begin(), contained_.end(), true);
}

std::vector<int32_t> ClassSubset::labels_of(const ImageSet& set, const std::string& owner,
                                            std::vector<std::string>& notes) const {
  std::vector<int32_t> labels;
  if (const auto matched = match_classes(set.classes, known_)) {
    const NamedClasses of{owner, set.classes}, among{"the model", known_};
    check_clear_names(*matched, of, among);
    note_match(notes, *matched, of, among);
    labels = matched->labels;
  } else {
    for (const std::string& name : set.classes) labels.push_back(label_among(name, known_));
  }
  for (int32_t& label : labels)
    if (label != other && !contains(label)) label = other;
  return labels;
}

void ClassSubset::apply(ImageSet& set, const std::string& owner) const {
  std::vector<std::string> notes;
  const std::vector<int32_t> labels = labels_of(set, owner, notes);
  const int64_t all = set.validation.count(), left_out = keep(set.validation, labels);
  keep(set.train, labels);
  set.notes.insert(set.notes.end(), notes.begin(), notes.end());
  const std::vector<std::string> classes = std::exchange(set.classes, known_);
  if (all == 0) return;  // training data next to other validation data
  check(set.validation.count() > 0, "evaluate: none of the ", all, " images of ", owner, " has a class of among=",
        path_, "; the data have the classes ", listed(classes), "; use images of the classes that the file names");
  set.notes.push_back(text("the accuracy is among ", count_, " of the model's ", known_.size(), " classes, those of ",
                           path_, "; the loss is that of all; ", with_commas(left_out), " of the ", with_commas(all),
                           " images of ", owner, " are of other classes and left out"));
}

Tensor ClassSubset::among(const Tensor& logits) const {
  std::vector<double> offsets;
  for (const bool is_contained : contained_)
    offsets.push_back(is_contained ? 0 : -std::numeric_limits<double>::infinity());
  const Tensor row = Tensor::from(Shape{1, static_cast<int64_t>(offsets.size())}, offsets, logits.dtype());
  return logits + broadcast_to(row.to(logits.device()), logits.shape());
}

}  // namespace orrery::models
