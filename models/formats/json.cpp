#include "models/formats/json.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "engine/system/hash.h"
#include "engine/system/machine_memory.h"
#include "engine/types/check.h"

namespace orrery::models {
namespace {

constexpr size_t max_depth = 64;
constexpr size_t max_comparisons = 100'000'000;  // of keys, while ordered objects are made

int64_t line_of(std::string_view text, size_t at) {
  return 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(std::min(at, text.size())), '\n');
}

// Memory of parsed JSON, measured with glibc: a value in a growing list; the separate memory of an
// object, a list and a text; a member. An ordered object moves its members while it grows.
constexpr double bytes_of_value = 40, bytes_of_object = 64, bytes_of_list = 32, bytes_of_text = 48,
                 bytes_of_member = 112;

struct Counted {
  size_t comparisons = 0;  // of keys, while ordered objects are made: an object compares each with all before it
  size_t objects = 0, lists = 0, texts = 0, commas = 0, members = 0;
  double memory(size_t bytes) const {
    const auto of = [](size_t count, double each) { return static_cast<double>(count) * each; };
    return static_cast<double>(bytes) + of(lists + commas, bytes_of_value) + of(objects, bytes_of_object) +
           of(lists, bytes_of_list) + of(texts, bytes_of_text) + of(members, bytes_of_member);
  }
};

// Throws Error if the text exceeds the limits, or if memory cannot hold the result.
Counted check_limits(std::string_view text, std::string_view what, int64_t first_line) {
  check(text.size() <= max_json_bytes, what, ": the JSON has ", text.size(), " bytes; at most ", max_json_bytes,
        " bytes are allowed");
  std::array<size_t, max_depth + 1> members = {};  // of the open objects and lists, the outermost first
  size_t depth = 0;
  Counted counted;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      ++counted.texts;
      for (++at; at < text.size() && text[at] != '"'; ++at)
        if (text[at] == '\\') ++at;
    } else if (c == '{' || c == '[') {
      if (depth == max_depth)
        fail(what, ": line ", first_line - 1 + line_of(text, at), ": lists and objects are nested more than ",
             max_depth, " levels deep");
      members[++depth] = 0;
      ++(c == '{' ? counted.objects : counted.lists);
    } else if ((c == '}' || c == ']') && depth > 0) {
      --depth;
    } else if (c == ':') {
      counted.comparisons += members[depth]++, ++counted.members;
    } else if (c == ',') {
      ++counted.commas;
    }
  }
  check_memory(what, counted.memory(text.size()), "use a smaller file");
  return counted;
}

// Call check_limits first.
template <class Parsed>
Parsed parse(std::string_view text, std::string_view what, int64_t first_line) {
  const std::string quoted = with_quoted_infinities(text);
  if (!quoted.empty()) text = quoted;
  try {
    return Parsed::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    const size_t at = std::min(error.byte > 0 ? error.byte - 1 : 0, text.size());
    const size_t line_break = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
    const size_t begin = line_break == std::string_view::npos ? 0 : line_break + 1;
    fail(what, ": line ", first_line - 1 + line_of(text, at), ", column ", at - begin + 1, ": ",
         at == text.size() ? "the JSON ends too early" : "invalid JSON");
  } catch (const nlohmann::json::exception&) {  // the only other exception of parsing
    fail(what, ": ", too_large_number);
  }
}

template <class Parsed>
const Parsed& find_member(const Parsed& object, std::string_view key, std::string_view what) {
  check(object.is_object(), what, ": an object {...} with '", key, "' is required");
  const auto found = object.find(key);
  check(found != object.end(), what, ": '", key, "' is missing");
  return *found;
}
template <class Parsed>
int64_t find_whole_number(const Parsed& object, std::string_view key, std::string_view what) {
  const Parsed& value = find_member(object, key, what);
  const bool whole =
      value.is_number_unsigned() ? value.template get<uint64_t>() <= INT64_MAX : value.is_number_integer();
  check_form(whole, value, key, what, "a whole number below 2^63");
  return value.template get<int64_t>();
}

}  // namespace

std::string with_quoted_infinities(std::string_view text) {
  if (text.find("Infinity") == text.npos && text.find("NaN") == text.npos) return "";
  std::string all;
  bool in_string = false;
  for (size_t at = 0; at < text.size();) {
    size_t length = 1;
    if (in_string && text[at] == '\\') length = std::min<size_t>(2, text.size() - at);
    if (text[at] == '"') in_string = !in_string;
    for (const std::string_view word : {"-Infinity", "Infinity", "NaN"})
      if (!in_string && text.substr(at).starts_with(word)) length = word.size();
    const bool quoted = !in_string && length > 1;
    if (quoted) all.push_back('"');
    all.append(text.substr(at, length));
    if (quoted) all.push_back('"');
    at += length;
  }
  return all;
}

Json parse_json(std::string_view text, std::string_view what) {
  if (check_limits(text, what, 1).comparisons <= max_comparisons) return parse<Json>(text, what, 1);
  return parse<SortedJson>(text, what, 1);
}
SortedJson parse_large_json(std::string_view text, std::string_view what, int64_t first_line) {
  check_limits(text, what, first_line);
  return parse<SortedJson>(text, what, first_line);
}

template <class Parsed>
Parsed parse_own_json(std::string_view text) {
  return Parsed::parse(text);
}
template <class Parsed>
Parsed own_json_or_null(std::string_view text) {
  Parsed parsed = Parsed::parse(text, nullptr, false);
  return parsed.is_discarded() ? Parsed() : parsed;
}
template Json parse_own_json(std::string_view text);
template SortedJson parse_own_json(std::string_view text);
template Json own_json_or_null(std::string_view text);
template SortedJson own_json_or_null(std::string_view text);

std::string json_text(const Json& value, int indent) { return value.dump(indent); }
std::string json_text(const SortedJson& value, int indent) { return value.dump(indent); }
std::string shown_json(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}
std::string shown_json(const SortedJson& value, int indent) {
  return value.dump(indent, ' ', false, SortedJson::error_handler_t::replace);
}

std::string shortened(const Json& value) { return shown_json(value).substr(0, 100); }
std::string shortened(const SortedJson& value) { return shown_json(value).substr(0, 100); }

template <class Parsed>
void check_form(bool right, const Parsed& value, std::string_view key, std::string_view what, const char* form) {
  if (!right) fail(what, ": '", key, "' is ", shortened(value), "; it must be ", form);
}
template void check_form(bool, const Json&, std::string_view, std::string_view, const char*);
template void check_form(bool, const SortedJson&, std::string_view, std::string_view, const char*);

namespace {
constexpr const char* seal_key = "sha256";
std::string seal_of_json(const Json& object) {
  const std::string all = json_text(object);
  return sha256(std::as_bytes(std::span(all)));
}
}  // namespace

void add_seal(Json& object) { object[seal_key] = seal_of_json(object); }
void take_seal(Json& object, std::string_view what) {
  const std::string seal = text_member(object, seal_key, what);
  object.erase(seal_key);
  check(seal_of_json(object) == seal, what, ": its content does not match its SHA-256, so it is damaged or was edited");
}

const Json& member(const Json& object, std::string_view key, std::string_view what) {
  return find_member(object, key, what);
}
const Json& list_member(const Json& object, std::string_view key, std::string_view what) {
  const Json& value = member(object, key, what);
  check_form(value.is_array(), value, key, what, "a list");
  return value;
}
std::string text_member(const Json& object, std::string_view key, std::string_view what) {
  const Json& value = member(object, key, what);
  check_form(value.is_string(), value, key, what, "text in quotes");
  return value.get<std::string>();
}
int64_t whole_number_member(const Json& object, std::string_view key, std::string_view what) {
  return find_whole_number(object, key, what);
}
int64_t whole_number_member(const SortedJson& object, std::string_view key, std::string_view what) {
  return find_whole_number(object, key, what);
}
double number_member(const Json& object, std::string_view key, std::string_view what) {
  const Json& value = member(object, key, what);
  check_form(value.is_number(), value, key, what, "a number");
  return value.get<double>();
}

}  // namespace orrery::models
