#include "models/inspection/base/hook_axes.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace orrery::models {
namespace {

std::string_view last_of(std::string_view hook) { return hook.substr(hook.rfind('.') + 1); }
bool is_in(const std::string& hook, const char* module) { return hook.find(module) != std::string::npos; }

std::string_view step_of(std::string_view name) { return name.starts_with("slot_") ? name.substr(5) : name; }

using Axes = std::vector<std::string>;

// Returns the axes of a value of an attention or a span, none for another's.
Axes attention_axes(const std::string& hook, int rank) {
  const std::string_view name = last_of(hook), step = step_of(name);
  const auto is = [&](std::initializer_list<std::string_view> names) { return std::ranges::count(names, step) > 0; };
  if (name == "span" || hook.ends_with(".span.output")) {
    if (rank == 3) return {"batch", "head", "position"};
    return Axes(static_cast<size_t>(rank), "head");
  }
  if (hook.ends_with(".share_of_token.output")) return {"batch", "position", "head"};  // of a dynamic span
  if (step.starts_with("row_")) return {"batch", "head", "position"};
  if (rank != 4) return {};
  const std::string key = step == name ? "key" : "slot";
  if (step == "score_query") return {"batch", "head", "position", "feature"};
  if (step == "score_key") return {"batch", "head", key, "feature"};
  if (step == "weight_largest" || step == "weight_total") return {"batch", "head", "position", "value"};
  if (is({"scores", "weights", "visible"}) || step.starts_with("score_") || step.starts_with("weight_"))
    return {"batch", "head", "position", key};
  const bool of_norm = is_in(hook, ".query_norm.") || is_in(hook, ".key_norm.");
  if (of_norm || is({"query", "key", "value", "head_output"})) return {"batch", "position", "head", "feature"};
  return {};
}

}  // namespace

Axes hook_axes(const std::string& hook, const Shape& shape, Dtype dtype) {
  const int rank = shape.rank();
  if (Axes axes = attention_axes(hook, rank); !axes.empty()) return axes;
  if (rank == 1) return {"value"};
  if (rank == 2 && dtype == Dtype::i32) return {"batch", "position"};
  const std::string_view name = last_of(hook);
  const bool of_units = name == "pre_activation" || name == "hidden";
  if (rank == 4 && of_units) return {"batch", "head", "position", "slot"};
  if (rank == 4) return {"batch", "row", "column", "channel"};
  Axes axes = {"batch", "position", name == "logits" ? "choice" : of_units ? "unit" : "feature"};
  if (rank == 2) axes.erase(axes.begin() + 1);
  axes.resize(static_cast<size_t>(rank), "feature");
  return axes;
}

std::vector<int> position_axes(const std::string& hook, const Shape& shape) {
  const Axes axes = hook_axes(hook, shape);
  std::vector<int> found;
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i] == "batch" || axes[i] == "position" || axes[i] == "row" || axes[i] == "column")
      found.push_back(static_cast<int>(i));
  return found;
}

bool is_of_keys(const std::string& hook) { return hook.ends_with(".scores") || hook.ends_with(".weights"); }
bool is_of_cross_attention(const std::string& hook) { return is_in(hook, "cross_attention"); }
bool is_step_of_attention(const std::string& hook) {
  const std::string_view step = step_of(last_of(hook));
  return step.starts_with("score_") || step.starts_with("weight_");
}
bool is_of_encoder(const std::string& hook) {
  const std::string_view name = last_of(hook);
  return is_of_cross_attention(hook) && (name == "key" || name == "value" || is_in(hook, ".key_norm."));
}

}  // namespace orrery::models
