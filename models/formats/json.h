// JSON from untrusted sources. Limits are checked before parsing, so a text can neither exhaust
// the stack nor take more memory than about 60 times its size, which is checked too. Any failure
// is an Error.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace orrery::models {

using Json = nlohmann::ordered_json;

// Bytes; for read_file. A vocabulary of 200,000 tokens takes 30 MB, an index of 90,000 tensors 9 MB,
// and a file of settings with the names of 20,000 classes 2 MB.
constexpr uint64_t max_json_bytes = uint64_t{64} << 20, max_index_bytes = uint64_t{16} << 20,
                   max_settings_bytes = uint64_t{8} << 20;

// Errors begin with `what`, most often the file's path:
//   run/step_000100/state.json: line 3, column 7: invalid JSON
//   run/step_000100/state.json: line 1: lists and objects are nested more than 64 levels deep
// Members keep their order. If objects have tens of thousands of members, they are sorted, because
// an ordered object compares each key with all previous keys.
Json parse_json(std::string_view text, std::string_view what);

// Parses a vocabulary or another large object, with fast lookup of members; they are sorted.
using SortedJson = nlohmann::json;
// `first_line`: the number of the text's first line, for errors, if the text is a line of a file.
SortedJson parse_large_json(std::string_view text, std::string_view what, int64_t first_line = 1);

// The end of the Error for 1e999, which f64 cannot hold.
inline constexpr const char* too_large_number =
    "a number is too large; its absolute value must be at most 1.797e308";

// Quotes Infinity, -Infinity and NaN, which Python writes as numbers and JSON lacks. Reading such a
// member as a number throws, but all other members can be read. Returns "" if the text has none.
std::string with_quoted_infinities(std::string_view text);

// Parses JSON that orrery wrote, without limits. The first throws for other text, the second returns
// null.
template <class Parsed = Json>
Parsed parse_own_json(std::string_view text);
template <class Parsed = Json>
Parsed own_json_or_null(std::string_view text);

// Returns a value as text, in one line if `indent` is -1. Bytes that are not UTF-8 throw in
// json_text and become U+FFFD in shown_json. Other files use these instead of dump and parse, which
// take a second each to compile.
std::string json_text(const Json& value, int indent = -1);
std::string json_text(const SortedJson& value, int indent = -1);
std::string shown_json(const Json& value, int indent = -1);
std::string shown_json(const SortedJson& value, int indent = -1);

// Returns a value as text of at most 100 characters, for errors.
std::string shortened(const Json& value);
std::string shortened(const SortedJson& value);

// Adds a seal against changes: the last member, "sha256", hashes all before it, without spaces.
void add_seal(Json& object);
// Removes the seal; throws Error, "WHAT: its content does not match ...", if it does not match.
void take_seal(Json& object, std::string_view what);

// Throws Error if a value is not of the required form:
//   model/config.json: 'n_layer' is "two"; it must be a whole number below 2^63
template <class Parsed>
void check_form(bool right, const Parsed& value, std::string_view key, std::string_view what, const char* form);

// Returns a member. Throws Error, as check_form does, if it has another type.
const Json& member(const Json& object, std::string_view key, std::string_view what);
const Json& list_member(const Json& object, std::string_view key, std::string_view what);
std::string text_member(const Json& object, std::string_view key, std::string_view what);
int64_t whole_number_member(const Json& object, std::string_view key, std::string_view what);
int64_t whole_number_member(const SortedJson& object, std::string_view key, std::string_view what);
double number_member(const Json& object, std::string_view key, std::string_view what);

}  // namespace orrery::models
