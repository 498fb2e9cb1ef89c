// Helpers for the JSON files of other programs' tokenizers.
#pragma once

#include <initializer_list>
#include <string>

#include "models/formats/json.h"

namespace orrery::models {

constexpr int64_t max_tokens = 1'000'000;  // ids of tokens in files must be lower

// Returns a member of `object`. Returns null if it is absent or `object` is not an object.
const SortedJson& item(const SortedJson& object, const char* key);
// Throws TokenizerNotSupported if `key` has a value that is neither null nor in `harmless`. The
// message begins with `what`: the file, or the file and a member of it.
void must_be(const SortedJson& object, const char* key, std::initializer_list<SortedJson> harmless,
             const std::string& what);
// Reads the JSON file `name` of a folder and sets `path` to the file found. If there is none,
// returns an empty object and sets `path` to "". Throws unless the file holds a JSON object.
SortedJson object_in(const std::string& folder, const char* name, std::string& path);

}  // namespace orrery::models
