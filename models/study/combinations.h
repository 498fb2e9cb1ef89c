// Settings of many runs from one line: values in braces, and every combination of them.
#pragma once

#include <string>
#include <vector>

#include "engine/settings/config.h"

namespace orrery::models {

// Expands braces as a shell does: "dyt(alpha={1,2})" gives dyt(alpha=1) and dyt(alpha=2), "{0..4}"
// gives 0 1 2 3 4 (or down), "{softmax,relu{,6}}" gives softmax relu relu6. Several give every
// combination; the first changes slowest. A comma in round brackets does not split:
// "{softmax,pointwise(relu, alpha=1)}" has two parts. Throws if a brace is not closed or not
// opened, if a pair is empty, or if there are more than `max_values` values.
std::vector<std::string> expand_braces(const std::string& text, size_t max_values = 100'000);

// Returns every combination of the keys' values; a key may have braces or be repeated. Keys keep
// the order of their first occurrence; the first changes slowest. Throws above `max_values`.
std::vector<Assignments> combinations(const Assignments& given, size_t max_values = 100'000);
std::vector<std::string> varied_keys(const Assignments& given);  // those with more than one value

}  // namespace orrery::models
