#include "models/inspection/base/edit_text.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "engine/autograd/autograd.h"
#include "engine/settings/registry.h"
#include "engine/settings/spec.h"
#include "engine/types/ascii.h"
#include "engine/types/usage_error.h"
#include "models/image_model.h"
#include "models/inspection/base/hook_axes.h"
#include "models/language_model.h"
#include "models/translation_model.h"

namespace orrery::models {
namespace {

using Operation = ValueEdit::Operation;

bool ends_with(const std::string& name, const char* value) { return name.ends_with(std::string(".") + value); }

// ---- components of a model

struct Components {
  struct Value {
    Shape shape;
    Dtype dtype;
    int times;  // in a pass
  };
  std::map<std::string, Value> values;      // hook values of an input of two positions
  std::set<std::string> unread;             // those that the model does not read
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
    const Hooks hooks({"*"}, [&](const std::string& name, const Tensor& value) {
      all.values[name] = {value.shape(), value.dtype(), all.values[name].times + 1};
    });
    run_shortly(model);
  }
  const std::string key = ".slots.key", span = ".span.share";  // of an adaptive span, which reads no token
  for (const nn::NamedParameter& p : nn::parameters_of(model)) {
    if (p.path.ends_with(key))
      all.slots[p.path.substr(0, p.path.size() - key.size())] = p.parameter->value.size(0);
    if (p.path.ends_with(span)) all.unread.insert(p.path.substr(0, p.path.rfind('.')) + ".input");
  }
  for (const auto& [name, value] : all.values) {
    for (const char* const shown : {"visible", "row_sum", "row_entropy", "row_zero_fraction", "row_max", "saturation"})
      if (ends_with(name, shown)) all.unread.insert(name);
    if (is_step_of_attention(name)) all.unread.insert(name);
    const std::string path = name.substr(0, name.rfind('.'));
    if (ends_with(name, "output") && !ends_with(name, "head_output")) all.names.push_back(path);
    if (ends_with(name, "head_output"))
      for (int64_t head = 0; head < value.shape[-2]; ++head) all.names.push_back(text(path, ".", head));
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
    bool is_part = false;
    for (const char* const kind : {"unit", "channel", "slot", "key"}) is_part |= number_after(last, kind) >= 0;
    const std::string near = nearest(is_part ? path : name, model_.names);
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
    check_count(index, model_.values.at(hook).shape[axis], path, kind);
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
    if (found && model_.values.at(found->hook).shape.rank() == 4) {
      check_count(head, model_.values.at(found->hook).shape[1], module, "heads");
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
    const bool is_word = !value.empty() && is_letter(value[0]) && value != "inf" && value != "nan";
    check_usage(!is_word, "--edits: '", edit.text, "': '", value, "' is not a value; an operation is *NUMBER, =NUMBER, "
                "=mean, =other or +NUMBER(other-this)");
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

// Throws if the model does not read the value, or if the edit needs what this value does not have.
void check_value(const ValueEdit& edit, const Components& model, Passes passes) {
  const auto check = [&](bool holds, const auto&... why) {
    check_usage(holds, "--edits: '", edit.text, "': ", edit.hook, " ", why...);
  };
  const Components::Value& value = model.values.at(edit.hook);
  check(value.dtype != Dtype::i32, "has whole numbers, tokens, which have no factor, number or mean; edit a value that "
        "is made of them, such as embedding");
  check(!model.unread.contains(edit.hook), "is only shown: the model does not read it, so that an edit would change "
        "nothing; edit another value, such as weights");
  const bool is_mean = edit.operation == Operation::set_to_mean;
  check(value.times == 1 || !(is_mean || edit.needs_other()), "is computed ", value.times, " times in a pass, so that "
        "its mean and its value in another example are not one; edit a value that is computed once");
  check(passes != Passes::stream || !edit.has_numbers_of_keys(),
        "has keys without numbers: a stream model reads a text block by block, with keys as far back as its spans "
        "reach; use orrery inspect");
}

ValueEdit edit_of(const std::string& text, const Components& model, Passes passes) {
  const size_t end = text.find_first_of("*=+@"), operation = text.find_first_of("*=+");
  check_usage(operation != std::string::npos && end > 0, "--edits: '", text,
              "' has no ", end == 0 ? "component" : "operation", "; an edit is such as blocks.0.attention.3*0");
  ValueEdit edit = Resolver(model, text).find(text.substr(0, end));
  const Shape& shape = model.values.at(edit.hook).shape;
  edit.text = text;
  if (is_of_keys(edit.hook)) edit.slots = shape[-1] - shape[-2];  // as many keys as queries
  read_operation(edit, text.substr(operation));
  check_value(edit, model, passes);
  if (end == operation) return edit;
  const std::string given = text.substr(end + 1, operation - end - 1);
  check_usage(passes != Passes::stream, "--edits: '", text, "': a stream model reads a text block by block, whose "
              "positions have no numbers; leave @", given, " out, or use orrery inspect");
  check_usage(passes != Passes::decoding, "--edits: '", text, "': @", given,
              " is for passes over all positions, and decoding computes them one by one; leave it out, or use orrery "
              "inspect, or orrery evaluate, for translations with --bleu=no");
  edit.region.push_back(positions_in(edit, given, shape));
  return edit;
}

bool is_word(char c) { return is_letter_or_digit(c) || c == '_' || c == '.'; }

// Returns the text without white space, except one space between the parts of a name or number, which is an error.
std::string without_spaces(std::string_view text) {
  std::string kept;
  bool after_space = false;
  for (const char c : text) {
    const bool space = std::string_view(" \t\r\n").find(c) != std::string_view::npos;
    if (!space && after_space && !kept.empty() && is_word(kept.back()) && is_word(c)) kept += ' ';
    if (!space) kept += c;
    after_space = space;
  }
  return kept;
}

std::vector<std::string> texts_of(const std::string& edits) {
  std::vector<std::string> texts;
  for (size_t begin = 0; begin <= edits.size();) {
    const size_t end = std::min(edits.find(';', begin), edits.size());
    const std::string edit = without_spaces(std::string_view(edits).substr(begin, end - begin));
    if (!edit.empty()) texts.push_back(edit);
    begin = end + 1;
  }
  return texts;
}

}  // namespace

std::string plain_edits(const std::string& edits) {
  std::string plain;
  for (const std::string& edit : texts_of(edits)) plain += (plain.empty() ? "" : "; ") + edit;
  return plain;
}

std::vector<ValueEdit> read_edits(const std::string& edits, nn::Module& model, Passes passes) {
  const std::vector<std::string> texts = texts_of(edits);
  std::vector<ValueEdit> all;
  if (texts.empty()) return all;
  const Components components = components_of(model);
  for (const std::string& edit : texts) all.push_back(edit_of(edit, components, passes));
  return all;
}

}  // namespace orrery::models
