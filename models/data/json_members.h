// Helpers for the JSON files of other programs' tokenizers.
#pragma once

#include <initializer_list>
#include <string>

#include "models/formats/json.h"

namespace orrery::models {

constexpr int64_t max_tokens = 1'000'000;

// Returns a member of an object, or null if it is absent.
const SortedJson& item(const SortedJson& object, const char* key);
// Throws TokenizerNotSupported if `key` has a value that is neither null nor in `harmless`.
void must_be(const SortedJson& object, const char* key, std::initializer_list<SortedJson> harmless,
             const std::string& what);
// Reads a folder's JSON object and sets `path` to its file; returns an empty object without a file.
SortedJson object_in(const std::string& folder, const char* name, std::string& path);

}  // namespace orrery::models
