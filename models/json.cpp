#include "models/json.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "engine/base/check.h"

namespace orrery::models {
namespace {

constexpr size_t deepest = 64;
constexpr size_t most_comparisons = 100'000'000;  // of keys, while ordered objects are made

int64_t line_of(std::string_view text, size_t at) {
  return 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(std::min(at, text.size())), '\n');
}

// Returns how many keys are compared while ordered objects are made: an object compares each with all before it.
size_t check_limits(std::string_view text, std::string_view what) {
  check(text.size() <= largest_json, what, ": ", text.size(), " bytes of JSON, more than the ", largest_json,
        " that are read");
  std::array<size_t, deepest + 1> members = {};  // of what is open, from the outside
  size_t depth = 0, comparisons = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      for (++at; at < text.size() && text[at] != '"'; ++at)
        if (text[at] == '\\') ++at;
    } else if (c == '{' || c == '[') {
      if (depth == deepest)
        fail(what, ": line ", line_of(text, at), ": lists and objects stand in one another more than ", deepest,
             " deep");
      members[++depth] = 0;
    } else if ((c == '}' || c == ']') && depth > 0) {
      --depth;
    } else if (c == ':') {
      comparisons += members[depth]++;
    }
  }
  return comparisons;
}

// After check_limits.
template <class Parsed>
Parsed parse(std::string_view text, std::string_view what) {
  try {
    return Parsed::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    const size_t at = std::min(error.byte > 0 ? error.byte - 1 : 0, text.size());
    const size_t line_break = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
    const size_t begin = line_break == std::string_view::npos ? 0 : line_break + 1;
    fail(what, ": line ", line_of(text, at), ", column ", at - begin + 1, ": ",
         at == text.size() ? "the JSON ends too early" : "this is no JSON");
  } catch (const nlohmann::json::exception&) {  // the only other thing that parsing knows
    fail(what, ": a number is too large");
  }
}

}  // namespace

Json parse_json(std::string_view text, std::string_view what) {
  if (check_limits(text, what) <= most_comparisons) return parse<Json>(text, what);
  return parse<SortedJson>(text, what);
}
SortedJson parse_large_json(std::string_view text, std::string_view what) {
  check_limits(text, what);
  return parse<SortedJson>(text, what);
}

const Json& member(const Json& object, const std::string& key, std::string_view what) {
  check(object.is_object(), what, ": an object {...} should hold '", key, "'");
  const auto found = object.find(key);
  check(found != object.end(), what, ": '", key, "' is missing");
  return *found;
}
std::string text_member(const Json& object, const std::string& key, std::string_view what) {
  const Json& value = member(object, key, what);
  check(value.is_string(), what, ": '", key, "' must be text in quotes");
  return value.get<std::string>();
}
int64_t whole_number_member(const Json& object, const std::string& key, std::string_view what) {
  const Json& value = member(object, key, what);
  const bool whole = value.is_number_unsigned() ? value.get<uint64_t>() <= INT64_MAX : value.is_number_integer();
  check(whole, what, ": '", key, "' must be a whole number below 2^63");
  return value.get<int64_t>();
}
double number_member(const Json& object, const std::string& key, std::string_view what) {
  const Json& value = member(object, key, what);
  check(value.is_number(), what, ": '", key, "' must be a number");
  return value.get<double>();
}

}  // namespace orrery::models
