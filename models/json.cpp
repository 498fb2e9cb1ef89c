#include "models/json.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "engine/base/check.h"

namespace orrery::models {
namespace {

constexpr size_t deepest = 64;
constexpr size_t most_in_order = 5'000;    // members of one object: the parser looks each key up among those before it
constexpr size_t most_values = 1'000'000;  // in all

int64_t line_of(std::string_view text, size_t at) {
  return 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(std::min(at, text.size())), '\n');
}

void check_limits(std::string_view text, std::string_view what, size_t most_members) {
  check(text.size() <= largest_json, what, ": ", text.size(), " bytes of JSON, more than the ", largest_json,
        " that are read");
  std::array<size_t, deepest + 1> members = {};  // of what is open, from the outside
  size_t depth = 0, values = 1, at = 0;
  const auto limit = [&](bool kept, const auto&... parts) {  // the line is counted only where it is told
    if (!kept) fail(what, ": line ", line_of(text, at), ": ", parts...);
  };
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      for (++at; at < text.size() && text[at] != '"'; ++at)
        if (text[at] == '\\') ++at;
    } else if (c == '{' || c == '[') {
      limit(depth < deepest, "lists and objects stand in one another more than ", deepest, " deep");
      members[++depth] = 0;
    } else if ((c == '}' || c == ']') && depth > 0) {
      --depth;
    } else if (c == ':') {
      limit(++members[depth] <= most_members, "an object has more than ", most_members, " members");
    } else if (c == ',') {
      limit(++values <= most_values, "more than ", most_values, " values");
    }
  }
}

template <class Parsed>
Parsed parse(std::string_view text, std::string_view what, size_t most_members) {
  check_limits(text, what, most_members);
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

Json parse_json(std::string_view text, std::string_view what) { return parse<Json>(text, what, most_in_order); }
SortedJson parse_large_json(std::string_view text, std::string_view what) {
  return parse<SortedJson>(text, what, most_values);
}

const Json& member(const Json& object, std::string_view key, std::string_view what) {
  check(object.is_object(), what, ": an object {...} should hold '", key, "'");
  const auto found = object.find(key);
  check(found != object.end(), what, ": '", key, "' is missing");
  return *found;
}
const Json& list_member(const Json& object, std::string_view key, std::string_view what) {
  const Json& value = member(object, key, what);
  check(value.is_array(), what, ": '", key, "' must be a list");
  return value;
}
std::string text_member(const Json& object, std::string_view key, std::string_view what) {
  const Json& value = member(object, key, what);
  check(value.is_string(), what, ": '", key, "' must be text in quotes");
  return value.get<std::string>();
}
int64_t whole_number_member(const Json& object, std::string_view key, std::string_view what) {
  const Json& value = member(object, key, what);
  const bool whole = value.is_number_unsigned() ? value.get<uint64_t>() <= INT64_MAX : value.is_number_integer();
  check(whole, what, ": '", key, "' must be a whole number below 2^63");
  return value.get<int64_t>();
}
double number_member(const Json& object, std::string_view key, std::string_view what) {
  const Json& value = member(object, key, what);
  check(value.is_number(), what, ": '", key, "' must be a number");
  return value.get<double>();
}

}  // namespace orrery::models
