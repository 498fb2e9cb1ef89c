#include "models/inspection/base/edits.h"

#include <algorithm>
#include <map>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "engine/settings/registry.h"
#include "engine/settings/spec.h"
#include "engine/types/usage_error.h"
#include "models/image_model.h"
#include "models/language_model.h"
#include "models/translation_model.h"

namespace orrery::models {
namespace {

using Operation = ValueEdit::Operation;

std::string without_spaces(std::string text) {
  std::erase(text, ' ');
  return text;
}
bool ends_with(const std::string& name, const char* value) { return name.ends_with(std::string(".") + value); }

// Returns the axes of batch and positions of a hook value.
std::vector<int> position_axes(const std::string& hook, const Shape& shape) {
  if (shape.rank() < 3) return {0};
  if (shape.rank() == 3) return {0, 1};
  if (ends_with(hook, "hidden") || ends_with(hook, "weights")) return {0, 2};  // (B, H, T, N)
  if (ends_with(hook, "output") && !ends_with(hook, "head_output")) return {0, 1, 2};  // pixels
  return {0, 1};
}

// Returns 1 inside of the region, else 0; undefined if it has no elements.
Tensor mask_of(const std::vector<AxisRange>& region, const Tensor& value) {
  Tensor mask;
  for (const AxisRange& range : region) {
    const int axis = range.axis < 0 ? range.axis + value.shape().rank() : range.axis;
    const int64_t size = value.size(axis);
    const int64_t from_end = range.begin < 0 ? size : 0, begin = std::clamp<int64_t>(range.begin + from_end, 0, size),
                  end = std::clamp<int64_t>(range.end + from_end, 0, size);
    if (begin == end) return {};
    Shape shape = value.shape();
    for (int i = 0; i < shape.rank(); ++i) shape = shape.with(i, i == axis ? size : 1);
    std::vector<double> numbers(static_cast<size_t>(size));
    std::fill(numbers.begin() + begin, numbers.begin() + end, 1.0);
    const Tensor one = broadcast_to(Tensor::from(shape, numbers, value.dtype()).to(value.device()), value.shape());
    mask = mask ? mask * one : one;
  }
  return mask;
}

// Returns the sum over batch and positions, in f64, with axes of length 1.
Tensor sum_over_positions(const std::string& hook, const Tensor& value) {
  const std::vector<int> axes = position_axes(hook, value.shape());
  return sum(value.detach().to(Dtype::f64), axes, true);
}

Tensor like(const Tensor& value, const Tensor& numbers) {
  const Tensor same = numbers.to(value.dtype()).to(value.device());
  return same.numel() == value.numel() ? same.reshape(value.shape()) : broadcast_to(same, value.shape());
}

// ---- components of a model

struct Components {
  std::map<std::string, Shape> values;      // hook values of an input of two positions
  std::map<std::string, int64_t> slots;     // number of slots, by the path of their attention
  std::vector<std::string> names;           // to suggest
};

void run_shortly(nn::Module& model) {
  const NoGrad guard;
  nn::ForwardPass pass;
  const Tensor tokens = Tensor::zeros(Shape{1, 2}, Dtype::i32, nn::device_of(model));
  if (auto* const images = dynamic_cast<ImageModel*>(&model)) {
    const int64_t size = images->image_size() > 0 ? images->image_size() : 32;
    model(Tensor::zeros(Shape{1, size, size, images->channels()}, Dtype::f32, nn::device_of(model)), pass);
  } else if (auto* const translator = dynamic_cast<TranslationModel*>(&model)) {
    translator->encode(tokens, {}, pass);
    model(tokens, pass);
  } else {
    model(dynamic_cast<LanguageModel&>(model).context() > 1 ? tokens : tokens.reshape(Shape{2, 1}), pass);
  }
}

Components components_of(nn::Module& model) {
  nn::ensure_paths(model);
  Components all;
  {
    const Hooks hooks({"*"}, [&](const std::string& name, const Tensor& value) { all.values[name] = value.shape(); });
    run_shortly(model);
  }
  const std::string key = ".slots.key";
  for (const nn::NamedParameter& p : nn::parameters_of(model))
    if (p.path.ends_with(key))
      all.slots[p.path.substr(0, p.path.size() - key.size())] = p.parameter->value.size(0);
  for (const auto& [name, shape] : all.values) {
    const std::string path = name.substr(0, name.rfind('.'));
    if (ends_with(name, "output") && !ends_with(name, "head_output")) all.names.push_back(path);
    if (ends_with(name, "head_output"))
      for (int64_t head = 0; head < shape[-2]; ++head) all.names.push_back(text(path, ".", head));
    if (ends_with(name, "residual") || name == "embedding" || ends_with(name, "embedding")) all.names.push_back(name);
  }
  return all;
}

// Returns the number after `kind` in the last part of a name, as in "unit17"; -1: it is another part.
int64_t number_after(const std::string& part, const std::string& kind) {
  const bool is_number = part.size() > kind.size() && part.size() < kind.size() + 10 && part.starts_with(kind) &&
                         std::all_of(part.begin() + static_cast<std::ptrdiff_t>(kind.size()), part.end(),
                                     [](char c) { return c >= '0' && c <= '9'; });
  return is_number ? std::stoll(part.substr(kind.size())) : -1;
}

// Finds the hook value and the region of a component.
class Resolver {
 public:
  Resolver(const Components& model, const std::string& edit) : model_(model), edit_(edit) {}

  ValueEdit find(const std::string& name) const {
    if (model_.values.contains(name)) return {.hook = name};
    if (model_.values.contains(name + ".output")) return {.hook = name + ".output"};
    const size_t dot = name.rfind('.');
    const std::string path = dot == std::string::npos ? "" : name.substr(0, dot), last = name.substr(dot + 1);
    if (const int64_t head = number_after(last, ""); head >= 0 && has(path, "head_output"))
      return one_of(path, "head_output", -2, head, "heads");
    if (const int64_t unit = number_after(last, "unit"); unit >= 0 && has(path, "hidden"))
      return one_of(path, "hidden", -1, unit, "units");
    if (const int64_t channel = number_after(last, "channel"); channel >= 0 && has(path, "output"))
      return one_of(path, "output", -1, channel, "channels");
    if (const int64_t slot = number_after(last, "slot"); slot >= 0)
      if (const std::optional<ValueEdit> found = slot_of(path, slot)) return *found;
    if (const int64_t key = number_after(last, "key"); key >= 0)
      if (const auto [attention, head] = head_of(path); head >= 0 && has(attention, "weights")) {
        ValueEdit found = one_of(attention, "weights", 1, head, "heads");
        found.region.push_back({-1, key, key + 1});
        return found;
      }
    const std::string near = nearest(name, model_.names);
    fail_usage("--edits: '", edit_, "' names no component of this model: ", name, "; ",
               near.empty() ? "list its values with orrery inspect --hooks=*" : "did you mean '" + near + "'?");
  }

 private:
  bool has(const std::string& path, const char* value) const { return model_.values.contains(path + "." + value); }
  void check_count(int64_t index, int64_t count, const std::string& path, const char* kind) const {
    check_usage(index < count, "--edits: '", edit_, "' is out of range; ", path, " has ", kind, " from 0 to ",
                count - 1);
  }
  ValueEdit one_of(const std::string& path, const char* value, int axis, int64_t index, const char* kind) const {
    const std::string hook = path + "." + value;
    check_count(index, model_.values.at(hook)[axis], path, kind);
    return {.hook = hook, .region = {{axis, index, index + 1}}};
  }
  // Returns the attention and the head of "blocks.0.attention.3"; -1: it names no head.
  std::pair<std::string, int64_t> head_of(const std::string& path) const {
    const size_t dot = path.rfind('.');
    const std::string attention = path.substr(0, dot);
    return {attention, dot == std::string::npos ? -1 : number_after(path.substr(dot + 1), "")};
  }
  // A slot is a column of the weights behind the keys, or of a feed-forward's hidden (B, H, T, N).
  std::optional<ValueEdit> slot_of(const std::string& path, int64_t slot) const {
    const auto in = [&](const std::string& module) -> std::optional<ValueEdit> {
      if (const auto found = model_.slots.find(module); found != model_.slots.end() && has(module, "weights")) {
        check_count(slot, found->second, module, "slots");
        const int64_t from_end = slot - found->second;
        return ValueEdit{.hook = module + ".weights", .region = {{-1, from_end, from_end + 1}}};
      }
      if (has(module, "hidden")) return one_of(module, "hidden", -1, slot, "slots");
      return std::nullopt;
    };
    if (const auto all_heads = in(path)) return all_heads;
    const auto [module, head] = head_of(path);
    std::optional<ValueEdit> found = head < 0 ? std::nullopt : in(module);
    if (found && model_.values.at(found->hook).rank() == 4) {
      check_count(head, model_.values.at(found->hook)[1], module, "heads");
      found->region.push_back({1, head, head + 1});
      return found;
    }
    return std::nullopt;
  }

  const Components& model_;
  const std::string& edit_;
};

// ---- the text

double number_in(const std::string& edit, const std::string& number) {
  double value = NAN;
  as_usage([&] { value = parse_number("--edits: '" + edit + "'", number); });
  check_usage(std::isfinite(value), "--edits: '", edit, "': ", number, " must be a finite number");
  return value;
}

void read_operation(ValueEdit& edit, const std::string& operation) {
  const std::string difference = "(other-this)", value = operation.substr(1);
  if (operation[0] == '*') {
    edit.operation = Operation::scale, edit.number = number_in(edit.text, value);
  } else if (operation == "=mean") {
    edit.operation = Operation::set_to_mean;
  } else if (operation == "=other") {
    edit.operation = Operation::set_to_other;
  } else if (operation[0] == '=') {
    edit.operation = Operation::set, edit.number = number_in(edit.text, value);
  } else {
    check_usage(operation.ends_with(difference), "--edits: '", edit.text, "' ends with ", operation,
                "; an operation is *NUMBER, =NUMBER, =mean, =other or +NUMBER(other-this)");
    edit.operation = Operation::add_difference;
    edit.number = number_in(edit.text, value.substr(0, value.size() - difference.size()));
  }
}

AxisRange positions_in(const ValueEdit& edit, const std::string& given, const Shape& shape) {
  const size_t dash = given.find('-');
  const int64_t first = number_after(given.substr(0, dash), ""),
                last = dash == std::string::npos ? first : number_after(given.substr(dash + 1), "");
  check_usage(first >= 0 && last >= first, "--edits: '", edit.text, "': @", given,
              " must be a position or a range; use @5, or @5-9 for positions 5 to 9");
  const std::vector<int> axes = position_axes(edit.hook, shape);
  check_usage(axes.size() == 2, "--edits: '", edit.text, "': ", edit.hook, " has no positions; leave @", given, " out");
  return {axes[1], first, last + 1};
}

ValueEdit edit_of(const std::string& text, const Components& model, bool with_positions) {
  const size_t end = text.find_first_of("*=+@"), operation = text.find_first_of("*=+");
  check_usage(operation != std::string::npos && end > 0, "--edits: '", text,
              "' has no ", end == 0 ? "component" : "operation", "; an edit is such as blocks.0.attention.3*0");
  ValueEdit edit = Resolver(model, text).find(text.substr(0, end));
  edit.text = text;
  if (end < operation) {
    check_usage(with_positions, "--edits: '", text, "': positions are for orrery inspect and evaluate; leave @ out");
    const std::string given = text.substr(end + 1, operation - end - 1);
    edit.region.push_back(positions_in(edit, given, model.values.at(edit.hook)));
  }
  read_operation(edit, text.substr(operation));
  return edit;
}

}  // namespace

Tensor ValueEdit::apply_to(const Tensor& value) {
  Tensor mask;
  const bool needs_other = operation == Operation::set_to_other || operation == Operation::add_difference;
  if (needs_other && other.numel() != value.numel()) return {};
  if (!region.empty() && !(mask = mask_of(region, value))) return {};
  ++applied;
  if (operation == Operation::set_to_mean && !other) {
    const Tensor total = sum_over_positions(hook, value);
    other = scale(total, static_cast<double>(total.numel()) / static_cast<double>(value.numel()));
  }
  Tensor edited;
  switch (operation) {
    case Operation::scale: edited = scale(value, number); break;
    case Operation::set: edited = Tensor::full_like(value, value.shape(), number); break;
    case Operation::set_to_mean:
    case Operation::set_to_other: edited = like(value, other); break;
    case Operation::add_difference: edited = value + scale(like(value, other) - like(value, own), number); break;
  }
  return mask ? where(mask, edited, value) : edited;
}

std::vector<std::string> names_of(const std::vector<ValueEdit>& edits) {
  std::vector<std::string> names;
  for (const ValueEdit& edit : edits) names.push_back(edit.hook);
  return names;
}

Hooks::Replace replace_by(std::vector<ValueEdit>& edits) {
  return {[&edits](const std::string& name, const Tensor& value) {
    Tensor edited;
    for (ValueEdit& edit : edits)
      if (edit.hook == name)
        if (const Tensor next = edit.apply_to(edited ? edited : value)) edited = next;
    return edited;
  }};
}

Edits::Edits(const std::string& text, nn::Module& model, bool with_positions) {
  std::vector<std::string> texts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(';', begin), text.size());
    const std::string edit = without_spaces(text.substr(begin, end - begin));
    if (!edit.empty()) texts.push_back(edit);
    begin = end + 1;
  }
  if (texts.empty()) return;
  const Components components = components_of(model);
  for (const std::string& edit : texts) edits_.push_back(edit_of(edit, components, with_positions));
}

bool Edits::needs_other() const {
  return std::any_of(edits_.begin(), edits_.end(), [](const ValueEdit& edit) {
    return edit.operation == Operation::set_to_other || edit.operation == Operation::add_difference;
  });
}

void Edits::learn_means(const std::function<void()>& run) {
  std::map<std::string, std::pair<Tensor, double>> sums;  // and numbers of positions
  for (const ValueEdit& edit : edits_)
    if (edit.operation == Operation::set_to_mean) sums[edit.hook] = {};
  if (sums.empty()) return;
  std::vector<std::string> names;
  for (const auto& [name, unused] : sums) names.push_back(name);
  {
    const Hooks hooks(names, [&](const std::string& name, const Tensor& value) {
      auto& [total, count] = sums.at(name);
      const Tensor more = sum_over_positions(name, value);
      total = total ? total + more : more;
      count += static_cast<double>(value.numel()) / static_cast<double>(more.numel());
    });
    run();
  }
  for (ValueEdit& edit : edits_)
    if (edit.operation == Operation::set_to_mean)
      edit.other = scale(sums.at(edit.hook).first, 1 / sums.at(edit.hook).second);
}

void Edits::learn_other(const std::function<void()>& run_other, const std::function<void()>& run_this) {
  if (!needs_other()) return;
  const auto values_of = [&](const std::function<void()>& run) {
    std::map<std::string, Tensor> values;
    const Hooks hooks(names_of(edits_), [&](const std::string& name, const Tensor& x) { values[name] = x.clone(); });
    run();
    return values;
  };
  const auto others = values_of(run_other), own = values_of(run_this);
  for (ValueEdit& edit : edits_) {
    if (edit.operation != Operation::set_to_other && edit.operation != Operation::add_difference) continue;
    edit.other = others.at(edit.hook), edit.own = own.at(edit.hook);
    check_usage(edit.other.shape() == edit.own.shape(), "--edits: '", edit.text, "': ", edit.hook, " is ",
                edit.own.shape(), " for this example and ", edit.other.shape(),
                " for the other; give a --patch_from with as many positions");
  }
}

void Edits::begin() {
  if (!edits_.empty()) hooks_.emplace(names_of(edits_), replace_by(edits_));
}

void Edits::check_applied() const {
  for (const ValueEdit& edit : edits_)
    check_usage(edit.applied > 0, "--edits: '", edit.text, "' changed nothing: ", edit.hook,
                " of this input has no such position or key; choose another");
}

}  // namespace orrery::models
