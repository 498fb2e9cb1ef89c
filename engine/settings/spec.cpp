#include "engine/settings/spec.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "engine/settings/registry.h"
#include "engine/types/ascii.h"

namespace orrery {

std::string detail::shortened(std::string_view text) {
  constexpr size_t enough = 400;
  return std::string(text.substr(0, enough)) + (text.size() > enough ? "..." : "");
}

std::vector<std::string> detail::split_at_bars(std::string_view text) {
  std::vector<std::string> all;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('|', begin), text.size());
    all.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return all;
}

void detail::replace_aliases(std::string& word, const Limits& limits) {
  if (const auto found = limits.aliases.find(word); found != limits.aliases.end()) word = found->second;
}
void detail::replace_aliases(Spec& spec, const Limits& limits) {
  replace_aliases(spec.name, limits);
  for (Spec::Item& item : spec.items) replace_aliases(item.value, limits);
}

Limits with_aliases(const std::vector<std::string>& choices) {
  Limits limits;
  for (const std::string& word : choices) {
    const std::vector<std::string> names = detail::split_at_bars(word);
    for (size_t i = 1; i < names.size(); ++i) limits.aliases[names[i]] = names[0];
  }
  return limits;
}
Limits one_of(const std::vector<std::string>& choices) {
  Limits limits = with_aliases(choices);
  for (const std::string& word : choices) limits.choices.push_back(detail::split_at_bars(word)[0]);
  return limits;
}

namespace {

using detail::shortened;

constexpr int max_depth = 32;               // nested parentheses
constexpr size_t max_characters = 1 << 16;  // characters
constexpr size_t max_items = 1'000;         // in one pair of parentheses: each is compared with all before it

bool is_name_character(char c) {
  return is_letter_or_digit(c) || std::string_view("_-+./:").find(c) != std::string_view::npos;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Spec whole() {
    check(text_.size() <= max_characters, "spec: '", shortened(text_), "' has ", text_.size(), " characters; at most ",
          max_characters, " are allowed");
    Spec spec = value(0);
    if (at_ < text_.size()) fail_here("the end");
    return spec;
  }

 private:
  Spec value(int depth) {
    check(depth < max_depth, "spec: '", shortened(text_), "' has more than ", max_depth, " levels of parentheses");
    Spec spec{word(), {}};
    if (!take('(')) return spec;
    do {
      check(spec.items.size() < max_items, "spec: '", spec.name, "' has more than ", max_items, " items; use fewer");
      spec.items.push_back(item(spec, depth));
    } while (take(','));
    if (!take(')')) fail_here("',' or ')'");
    return spec;
  }

  Spec::Item item(const Spec& owner, int depth) {
    skip_space();
    const size_t start = at_;
    Spec first = value(depth + 1);
    if (!first.items.empty() || !take('=')) {
      check(owner.items.empty() || owner.items.back().key.empty(), "spec: '", shortened(text_), "': '", print(first),
            "' at position ", start + 1, " has no name but follows a named one; positional items come first");
      return {"", std::move(first)};
    }
    for (const Spec::Item& other : owner.items)
      check(other.key != first.name, "spec: '", shortened(text_), "': '", first.name, "' is given again at position ",
            start + 1, "; leave one of them out");
    return {std::move(first.name), value(depth + 1)};
  }

  std::string word() {
    skip_space();
    const size_t start = at_;
    while (at_ < text_.size() && is_name_character(text_[at_])) ++at_;
    if (at_ == start) fail_here("a name or a number");
    std::string found(text_.substr(start, at_ - start));
    skip_space();
    return found;
  }

  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    skip_space();
    return true;
  }
  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  [[noreturn]] void fail_here(std::string_view expected) const {
    if (at_ >= text_.size()) fail("spec: '", shortened(text_), "' ends where ", expected, " is expected");
    fail("spec: '", shortened(text_), "' has '", text_[at_], "' at position ", at_ + 1, " where ", expected,
         " is expected");
  }

  std::string_view text_;
  size_t at_ = 0;
};

template <class T>
bool read_real(std::string_view text, T& x) {
  const std::string_view digits = text.starts_with('+') && !text.starts_with("+-") ? text.substr(1) : text;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), x);
  return error == std::errc() && end == digits.data() + digits.size() && !std::isnan(x);
}

}  // namespace

bool Spec::operator==(const Spec& other) const { return name == other.name && items == other.items; }

Spec parse_spec(std::string_view text) { return Parser(text).whole(); }

std::string print(const Spec& spec) {
  std::vector<std::string> items;
  for (const Spec::Item& item : spec.items)
    items.push_back(item.key.empty() ? print(item.value) : item.key + "=" + print(item.value));
  return items.empty() ? spec.name : spec.name + "(" + join(items) + ")";
}

std::ostream& operator<<(std::ostream& out, const Spec& spec) { return out << print(spec); }

void set_item(Spec& spec, std::string_view path, Spec value) {
  const size_t dot = path.find('.');
  const std::string_view key = path.substr(0, dot);
  check(!key.empty() && std::all_of(key.begin(), key.end(), is_name_character), "spec: '", path, "' names an item of '",
        spec.name, "' that is not a name; use letters, digits and _-+./:");
  auto item = std::find_if(spec.items.begin(), spec.items.end(), [&](const Spec::Item& i) { return i.key == key; });
  if (item == spec.items.end()) item = spec.items.insert(item, {std::string(key), {}});
  if (dot == std::string_view::npos) {
    item->value = std::move(value);
    return;
  }
  check(!item->value.name.empty(), "spec: '", path, "' changes an item of '", key, "', which '", spec.name,
        "' does not set; set '", key, "' first");
  set_item(item->value, path.substr(dot + 1), std::move(value));
}

int64_t parse_whole_number(std::string_view what, std::string_view text) {
  const std::string_view digits = trimmed(text);
  int64_t whole = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), whole);
  if (error == std::errc() && end == digits.data() + digits.size()) return whole;
  check(error != std::errc::result_out_of_range, what, ": ", shortened(digits),
        " is out of range; use a whole number from -2^63 to 2^63 - 1");
  long double x = 0;  // a double would round 9e18 + 1
  static_assert(std::numeric_limits<long double>::digits >= 64);
  check(read_real(digits, x) && x >= -0x1p63L && x < 0x1p63L && std::floor(x) == x, what, ": '", shortened(digits),
        "' is not a whole number");
  return static_cast<int64_t>(x);
}

std::optional<double> number_in(std::string_view text) {
  double x = 0;
  if (!read_real(trimmed(text), x)) return {};
  return x;
}

double parse_number(std::string_view what, std::string_view text) {
  const std::optional<double> x = number_in(text);
  check(x.has_value(), what, ": '", shortened(trimmed(text)), "' is not a number");
  return *x;
}

bool parse_yes_or_no(std::string_view what, std::string_view text) {
  const std::string_view word = trimmed(text);
  const bool yes = word == "yes" || word == "true" || word == "True";
  check(yes || word == "no" || word == "false" || word == "False", what, ": '", shortened(word),
        "' is invalid; use yes or no");
  return yes;
}

std::string print_number(double x) {
  char digits[32];
  std::string number(digits, std::to_chars(digits, digits + sizeof(digits), x).ptr);
  if (const size_t e = number.find('e'); e != std::string::npos) {  // 1e-4, not 1e-04
    const size_t begin = e + (number[e + 1] == '-' ? 2 : 1);
    number.erase(begin, number.find_first_not_of("+0", begin) - begin);
  }
  return number;
}

}  // namespace orrery
