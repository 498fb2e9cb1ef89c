#include "models/study/refutation.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/settings/registry.h"
#include "engine/settings/spec.h"
#include "engine/types/ascii.h"
#include "engine/types/check.h"

namespace orrery::models {
namespace {

struct Split {
  std::string before, sign, after;
};
// Splits at the last of these signs that has a space on both sides.
std::optional<Split> split_at(const std::string& text, std::initializer_list<const char*> signs) {
  std::optional<Split> found;
  size_t last = 0;
  for (const char* const sign : signs)
    if (const size_t at = text.rfind(" " + std::string(sign) + " "); at != std::string::npos && (!found || at > last)) {
      const size_t length = std::string(sign).size() + 2;
      const std::string_view all = text;
      found = Split{std::string(trimmed(all.substr(0, at))), sign, std::string(trimmed(all.substr(at + length)))};
      last = at;
    }
  return found;
}

}  // namespace

Comparison parse_refutation(const std::string& what, const std::string& text, std::span<const std::string> variants) {
  constexpr const char* form =
      "' is not of the form 'relu > softmax', 'relu > softmax - 0.01' or 'dyt != layer +- 0.02'";
  Comparison comparison;
  comparison.text = text;
  const size_t colon = text.find(": ");
  if (colon != std::string::npos) comparison.metric_text = trimmed(text.substr(0, colon));
  check(colon == std::string::npos || !comparison.metric_text.empty(), what, ": '", text,
        "' has no metric before its colon; add one, or remove the colon");
  const std::string condition = colon == std::string::npos ? text : text.substr(colon + 2);
  const std::optional<Split> sides = split_at(condition, {">", "<", "!="});
  check(sides.has_value() && !sides->before.empty() && !sides->after.empty(), what, ": '", text, form);
  comparison.left = sides->before, comparison.right = sides->after;
  comparison.refuted = sides->sign == ">"   ? RefutedWhen::above
                       : sides->sign == "<" ? RefutedWhen::below
                                            : RefutedWhen::outside;
  const std::optional<Split> margin = split_at(comparison.right, {"+", "-", "+-"});
  if (margin) {
    comparison.right = margin->before;
    std::string number = margin->after;
    if (number.ends_with('%')) {
      comparison.is_relative = true;
      number = trimmed(number.substr(0, number.size() - 1));
    }
    comparison.bound = parse_number(what, number) / (comparison.is_relative ? 100 : 1);
    check(std::isfinite(comparison.bound) && comparison.bound >= 0, what, ": the margin of '", text,
          "' must be a number of at least 0");
    if (margin->sign == "-") comparison.bound = -comparison.bound;
  }
  const bool both_sides = margin && margin->sign == "+-";
  if (comparison.refuted == RefutedWhen::outside)
    check(both_sides && comparison.bound > 0, what, ": '", text,
          "' tests for equality, which requires a margin on both sides, as in '", comparison.left,
          " != ", comparison.right, " +- 0.02'");
  else
    check(!both_sides, what, ": '", text, "' has a margin on both sides, which only != takes; use + or -");
  const auto is_variant = [&](const std::string& word) {
    return std::find(variants.begin(), variants.end(), word) != variants.end();
  };
  const auto refuse = [&](const std::string& word) {
    const std::string meant = nearest(word, variants);
    fail(what, ": '", text, "' names '", word, "', which is not a variant; ",
         meant.empty() ? "variants are " + join(variants) : "did you mean '" + meant + "'?");
  };
  if (!is_variant(comparison.left)) refuse(comparison.left);
  check(comparison.left != comparison.right, what, ": '", text,
        "' compares a variant with itself; name another variant");
  if (is_variant(comparison.right)) return comparison;
  comparison.of_variants = false;
  if (comparison.right.find_first_of("(0123456789") == std::string::npos && comparison.right != "swept")
    refuse(comparison.right);
  comparison.number = parse_metric(what, comparison.right);
  for (const std::string& pattern : comparison.number.patterns()) refuse(pattern);
  check(!comparison.number.is_of_sweep(), what, ": '", text, "' must end with a variant or a number");
  return comparison;
}

}  // namespace orrery::models
