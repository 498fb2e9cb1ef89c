#include "models/architectures/embedding_scale.h"

#include <cmath>

#include "engine/types/check.h"

namespace orrery::models {

LearnableNumber embedding_scale(const Spec& spec, int64_t width, std::string_view owner) {
  const double by_width = std::sqrt(static_cast<double>(width));
  if (print(spec) == "none") return {1};
  if (print(spec) == "sqrt_width") return {by_width};
  const bool learned = spec.name == "learned";
  check(learned ? spec.items.size() <= 1 : spec.items.empty(), owner, ": embedding_scale '", spec,
        "' is invalid; use none, a number, sqrt_width, learned or learned(NUMBER)");
  if (learned && spec.items.empty()) return {by_width, true};
  const double scale = parse_number(text(owner, ": embedding_scale"), print(learned ? spec.items[0].value : spec));
  check(scale >= 1e-6 && scale <= 1e6, owner, ": embedding_scale is ", print_number(scale),
        "; it must be at least 1e-6 and at most 1e6");
  return {scale, learned};
}

}  // namespace orrery::models
