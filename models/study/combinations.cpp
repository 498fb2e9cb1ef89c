#include "models/study/combinations.h"

#include <algorithm>
#include <optional>

#include "engine/settings/spec.h"
#include "engine/types/ascii.h"
#include "engine/types/usage_error.h"

namespace orrery::models {
namespace {

// Offsets of the brace that closes the brace at `open`, and of the commas between the parts.
struct Braces {
  size_t close;
  std::vector<size_t> commas;
};
Braces braces_at(const std::string& text, size_t open) {
  Braces found{std::string::npos, {}};
  int braces = 0, brackets = 0;
  for (size_t i = open; i < text.size(); ++i) {
    if (text[i] == '(') ++brackets;
    if (text[i] == ')') --brackets;
    if (text[i] == '{') ++braces;
    if (text[i] == ',' && braces == 1 && brackets == 0) found.commas.push_back(i);
    if (text[i] == '}' && --braces == 0) {
      found.close = i;
      return found;
    }
  }
  fail_usage("sweep: '", text, "' opens a brace that is not closed; add }");
}

// Returns the numbers of a range such as "0..4"; none if `part` is not a range.
std::optional<std::vector<std::string>> range_in(const std::string& part, size_t max_values) {
  const size_t dots = part.find("..");
  const auto digits = [](const std::string& s) {
    return !s.empty() && s.size() < 18 && std::all_of(s.begin(), s.end(), is_digit);
  };
  if (dots == std::string::npos || !digits(part.substr(0, dots)) || !digits(part.substr(dots + 2))) return {};
  const int64_t first = std::stoll(part.substr(0, dots)), last = std::stoll(part.substr(dots + 2));
  const int64_t step = first <= last ? 1 : -1;
  check_usage(static_cast<size_t>((last - first) * step) < max_values, "sweep: {", part, "} has more than ", max_values,
              " values; use a shorter range");
  std::vector<std::string> all;
  for (int64_t i = first; i != last + step; i += step) all.push_back(std::to_string(i));
  return all;
}

// Limits nested braces, because each level is a recursive call.
constexpr int max_nested_braces = 32;

std::vector<std::string> expand(const std::string& text, size_t max_values, int depth) {
  check_usage(depth <= max_nested_braces, "sweep: braces are nested more than ", max_nested_braces,
              " levels deep; use fewer levels");
  std::vector<std::string> all = {""};
  size_t done = 0;  // each of `all` contains the text before this offset, expanded
  for (size_t open; (open = text.find('{', done)) != std::string::npos;) {
    const size_t stray = text.find('}', done);
    check_usage(stray == std::string::npos || open < stray, "sweep: '", text,
                "' closes a brace that was not opened; remove }");
    Braces braces = braces_at(text, open);
    check_usage(braces.close > open + 1, "sweep: '", text, "' has empty braces; put values in them, as in {1,2}");
    braces.commas.push_back(braces.close);
    std::vector<std::string> parts;
    size_t begin = open + 1;
    for (const size_t end : braces.commas) {
      const std::string part = text.substr(begin, end - begin);
      const auto range = braces.commas.size() == 1 ? range_in(part, max_values) : std::nullopt;
      const std::vector<std::string> its = range ? *range : expand(part, max_values, depth + 1);
      parts.insert(parts.end(), its.begin(), its.end());
      begin = end + 1;
    }
    check_usage(parts.size() <= max_values / all.size(), "sweep: '", text, "' has more than ", max_values,
                " values; give fewer");
    std::vector<std::string> longer;
    for (const std::string& start : all)
      for (const std::string& part : parts) longer.push_back(start + text.substr(done, open - done) + part);
    all = std::move(longer);
    done = braces.close + 1;
  }
  check_usage(text.find('}', done) == std::string::npos, "sweep: '", text,
              "' closes a brace that was not opened; remove }");
  for (std::string& value : all) value += text.substr(done);
  return all;
}

}  // namespace

std::vector<std::string> expand_braces(const std::string& text, size_t max_values) {
  return expand(text, max_values, 0);
}

namespace {

struct KeyValues {
  std::string key;
  std::vector<std::string> values;
};

std::vector<KeyValues> lists_of(const Assignments& given, size_t max_values) {
  std::vector<KeyValues> lists;
  for (const auto& [key, text] : given) {
    auto list = std::ranges::find(lists, key, &KeyValues::key);
    if (list == lists.end()) list = lists.insert(lists.end(), {key, {}});
    for (std::string& value : expand_braces(text, max_values))
      if (std::ranges::find(list->values, value) == list->values.end()) list->values.push_back(std::move(value));
  }
  return lists;
}

}  // namespace

std::vector<Assignments> combinations(const Assignments& given, size_t max_values) {
  std::vector<Assignments> all = {{}};
  for (const auto& [key, values] : lists_of(given, max_values)) {
    check_usage(all.size() <= max_values / values.size(), "sweep: more than ", max_values,
                " combinations of settings; give fewer values");
    std::vector<Assignments> longer;
    for (const Assignments& begun : all)
      for (const std::string& value : values) {
        longer.push_back(begun);
        longer.back().emplace_back(key, value);
      }
    all = std::move(longer);
  }
  return all;
}

std::vector<std::string> varied_keys(const Assignments& given) {
  std::vector<std::string> keys;
  for (const auto& [key, values] : lists_of(given, 100'000))
    if (values.size() > 1) keys.push_back(key);
  return keys;
}

}  // namespace orrery::models
