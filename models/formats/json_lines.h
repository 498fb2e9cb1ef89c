// Lines that are JSON objects each (JSONL), of which only some members are kept.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::models {

// Returns the texts that the object in line `number` has under `keys`; under `label`, one of the keys, also a
// whole number, true or false, as a text. Memory is that of the line.
// Errors:
//   text: a.jsonl: line 7, column 12: invalid JSON
//   text: a.jsonl: line 7, column 12: a number is too large; its absolute value must be at most 1.797e308
//   text: a.jsonl: line 7: 'text' is missing; its members are id, body
//   text: a.jsonl: line 7: 'text' must be text in quotes
std::vector<std::string> texts_in_line(std::string_view line, uint64_t number, std::span<const std::string> keys,
                                       std::string_view what, std::string_view label = "");

}  // namespace orrery::models
