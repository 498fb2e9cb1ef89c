#include "models/former_names.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>

#include "engine/types/ascii.h"

namespace orrery::models {
namespace {

constexpr std::array<FormerName, 11> metrics = {{
    {"attention_zero_fraction", "attention_zeros"},
    {"hidden_zero_fraction", "hidden_zeros"},
    {"max_score", "largest_score"},
    {"top_unit_fraction", "top_share"},
    {"head_output_variance", "read_variance"},
    {"residual_variance", "stream_variance"},
    {"step_ms", "milliseconds"},
    {"ablation", "causes"},
    {"logit_lens", "depth"},
    {"normalization_curves", "curves"},
    {"neurons", "memories"},
}};

constexpr std::array<FormerName, 8> presets_of_revival = {{
    {"norm-free-gelu", "sm-g"},
    {"norm-free-relu", "sm-r"},
    {"norm-free-identity", "sm"},
    {"norm-free-leaky-global", "sm-leaky-global"},
    {"norm-free-leaky-per-layer", "sm-leaky-per-layer"},
    {"pre-ln-gelu", "sm-ln-g"},
    {"pre-ln-relu", "sm-ln-r"},
    {"pre-ln-identity", "sm-ln"},
}};

using Name = std::string_view FormerName::*;

// Replaces whole names at the beginning of words; paths follow a slash and stay.
std::string replaced(std::string_view text, Name from, Name to) {
  const auto continues = [](char c) { return is_letter_or_digit(c) || c == '_' || c == '.'; };
  std::string all;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    while (end < text.size() && continues(text[end])) ++end;
    const std::string_view word = text.substr(begin, end - begin);
    const auto found =
        std::find_if(metrics.begin(), metrics.end(), [&](const FormerName& name) { return name.*from == word; });
    const bool of_path = begin > 0 && text[begin - 1] == '/';
    all += found == metrics.end() || of_path ? word : (*found).*to;
    if (end < text.size()) all += text[end++];
    begin = end;
  }
  return all;
}

}  // namespace

std::span<const FormerName> former_metrics() { return metrics; }
std::span<const FormerName> former_presets() { return presets_of_revival; }

std::vector<std::string> former_names(std::string_view current) {
  std::vector<std::string> all;
  for (const std::span<const FormerName> names : {former_metrics(), former_presets()})
    for (const FormerName& each : names)
      if (each.current == current) all.emplace_back(each.former);
  return all;
}

std::string with_current_metrics(std::string_view text) {
  return replaced(text, &FormerName::former, &FormerName::current);
}
std::string with_former_metrics(std::string_view text) {
  return replaced(text, &FormerName::current, &FormerName::former);
}

bool matches_metric(const std::string& pattern, const std::string& name) {
  if (::fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return true;
  const std::string_view first = std::string_view(name).substr(0, name.find('/'));
  for (const FormerName& each : metrics)
    if (each.current == first)
      return ::fnmatch(pattern.c_str(), (std::string(each.former) + name.substr(first.size())).c_str(), 0) == 0;
  return false;
}

}  // namespace orrery::models
