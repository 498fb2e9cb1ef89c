// What the JSON files of other programs' tokenizers have in common.
#pragma once

#include <initializer_list>
#include <string>

#include "models/formats/json.h"

namespace orrery::models {

constexpr int64_t most_tokens = 1'000'000;

// A member of an object, which may be absent or null: then null.
const SortedJson& item(const SortedJson& object, const char* key);
// TokenizerNotSupported where it says what this program cannot do: a key that is neither absent nor one of these.
void must_be(const SortedJson& object, const char* key, std::initializer_list<SortedJson> harmless,
             const std::string& what);
// A file of a folder, which must be an object, and its path; an empty object where there is none.
SortedJson object_in(const std::string& folder, const char* name, std::string& path);

}  // namespace orrery::models
