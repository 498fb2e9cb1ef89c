#include "models/inspection/base/hook_axes.h"

#include <string_view>

namespace orrery::models {
namespace {

std::string_view last_of(std::string_view hook) { return hook.substr(hook.rfind('.') + 1); }
bool is_in(const std::string& hook, const char* module) { return hook.find(module) != std::string::npos; }

}  // namespace

std::vector<int> position_axes(const std::string& hook, const Shape& shape) {
  const std::string_view name = last_of(hook);
  const bool of_norm = is_in(hook, ".query_norm.") || is_in(hook, ".key_norm.");  // (B, T, H, D)
  if (name == "span" || (name == "output" && is_in(hook, ".span."))) {            // (H), or (B, H, T)
    if (shape.rank() < 3) return {};
    return {0, 2};
  }
  if (shape.rank() < 3) return {0};
  if (shape.rank() == 3 || of_norm) return {0, 1};
  for (const char* const by_head : {"scores", "slot_scores", "weights", "pre_activation", "hidden"})
    if (name == by_head) return {0, 2};
  for (const char* const of_heads : {"query", "key", "value", "head_output"})
    if (name == of_heads) return {0, 1};
  return {0, 1, 2};
}

bool is_of_keys(const std::string& hook) { return hook.ends_with(".scores") || hook.ends_with(".weights"); }
bool is_of_cross_attention(const std::string& hook) { return is_in(hook, "cross_attention"); }
bool is_of_encoder(const std::string& hook) {
  const std::string_view name = last_of(hook);
  return is_of_cross_attention(hook) && (name == "key" || name == "value" || is_in(hook, ".key_norm."));
}

}  // namespace orrery::models
