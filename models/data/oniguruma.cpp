#include "models/data/oniguruma.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <utility>
#include <vector>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "engine/types/ascii.h"
#include "engine/types/check.h"
#include "models/data/tokenizer.h"

namespace orrery::models {
namespace {

#define ORRERY_WORD R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})"

// An escape or class name and its PCRE2 form inside the brackets of a class.
using Meaning = std::pair<std::string_view, std::string_view>;
constexpr std::array<Meaning, 8> class_of_escape{{{"s", R"(\p{White_Space})"},
                                                  {"S", R"(\P{White_Space})"},
                                                  {"d", R"(\p{Nd})"},
                                                  {"D", R"(\P{Nd})"},
                                                  {"h", R"(\p{AHex})"},
                                                  {"H", R"(\P{AHex})"},
                                                  {"v", R"(\x0b)"},
                                                  {"w", ORRERY_WORD R"(\xb2\xb3\xb9\xbc-\xbe)"}}};
constexpr std::array<Meaning, 12> class_of_name{{{"alpha", R"(\p{Alphabetic})"},
                                                 {"digit", R"(\p{Nd})"},
                                                 {"alnum", R"(\p{Alphabetic}\p{Nd})"},
                                                 {"upper", R"(\p{Uppercase})"},
                                                 {"lower", R"(\p{Lowercase})"},
                                                 {"space", R"(\p{White_Space})"},
                                                 {"blank", R"(\p{Zs}\t)"},
                                                 {"cntrl", R"(\p{Cc})"},
                                                 {"punct", R"(\p{P}\p{S})"},
                                                 {"xdigit", R"(\p{AHex})"},
                                                 {"ascii", R"(\x00-\x7f)"},
                                                 {"word", ORRERY_WORD}}};
#undef ORRERY_WORD

template <size_t n>
std::string_view meaning_of(std::string_view name, const std::array<Meaning, n>& meanings) {
  for (const auto& [known, meaning] : meanings)
    if (known == name) return meaning;
  return {};
}

// PCRE2's \p{Greek} also matches characters that scripts share (scx); Oniguruma's only the script.
bool is_script(std::string_view name) {
  const std::string property = text("\\p{sc:", name, "}");
  int error = 0;
  size_t at = 0;
  pcre2_code* const code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(property.data()), property.size(), PCRE2_UTF, &error, &at, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

class Translation {
 public:
  explicit Translation(std::string_view expression) : all_(expression) {}

  std::string output() {
    while (more()) part();
    end_options();
    return std::move(output_);
  }

 private:
  struct Group {
    size_t begin = 0;       // offset in output_
    bool any_case = false;  // (?i)
    bool extended = false;  // (?x)
    size_t options = 0;     // groups opened for (?i) and similar, closed with this one
  };
  static constexpr size_t none = static_cast<size_t>(-1);

  bool more() const { return at_ < all_.size(); }
  bool next_is(std::string_view words) const { return all_.substr(at_).starts_with(words); }
  Group& group() { return groups_.back(); }

  template <class... Parts>
  [[noreturn]] void not_supported(std::string_view what, const Parts&... way_out) const {
    throw TokenizerNotSupported(
        text("tokenizer: the pattern '", all_, "' has '", what, "', which is not supported; ", way_out...));
  }
  static constexpr std::string_view other = "write it another way, or use another tokenizer";

  // Appends text that a following quantifier repeats.
  void atom(std::string_view words) {
    atom_ = output_.size();
    quantified_ = false, letter_ = 0;
    output_ += words;
  }
  std::string_view take(size_t bytes) {
    const std::string_view taken = all_.substr(at_, bytes);
    at_ += taken.size();
    return taken;
  }

  void part() {
    const char c = all_[at_];
    if (group().extended && (c == ' ' || (c >= '\t' && c <= '\r'))) {
      ++at_;
    } else if (group().extended && c == '#') {
      at_ = std::min(all_.find('\n', at_), all_.size());
    } else if (c == '\\') {
      escape();
    } else if (c == '[') {
      set();
    } else if (c == '(') {
      open();
    } else if (c == ')') {
      close();
    } else if (c == '|') {
      atom_ = none, letter_ = 0;
      output_ += take(1);
    } else if (c == '*' || c == '+' || c == '?') {
      const std::string words(take(1));
      quantify(words, next_is("?") || next_is("+"));
    } else if (c == '{') {
      brace();
    } else if (c == '^' || c == '$' || c == '.') {
      atom(take(1));
    } else {
      character();
    }
  }

  // Some characters match two letters if case is ignored (ß and ss); only Oniguruma supports that.
  void literal(std::string_view words, uint32_t point) {
    const char before = letter_;
    atom(words);
    if (!group().any_case) return;
    if (point >= 0x80) not_supported(words, "a part that ignores case, (?i), may have ASCII characters only");
    letter_ = lower_case(static_cast<char>(point));
    const std::string two{before, letter_};
    for (const char* const one : {"ss", "st", "ff", "fi", "fl"})
      if (two == one) not_supported(two, "if case is ignored, (?i), these two also match one character; ", other);
  }
  size_t bytes_of_character() const {
    size_t bytes = 1;
    while (at_ + bytes < all_.size() && (static_cast<unsigned char>(all_[at_ + bytes]) & 0xC0) == 0x80) ++bytes;
    return bytes;
  }
  void character(std::string_view before = "") {
    const auto first = static_cast<unsigned char>(all_[at_]);
    literal(text(before, take(bytes_of_character())), first);
  }

  // Reads a character's number: \x41, \x{e9}, \u00e9, \o{141}. Returns false for other escapes.
  bool numbered(std::string& words, uint32_t& point) {
    const char kind = at_ + 1 < all_.size() ? all_[at_ + 1] : '\0';
    const bool braces = at_ + 2 < all_.size() && all_[at_ + 2] == '{';
    if (kind != 'x' && kind != 'u' && kind != 'o') return false;
    const size_t begin = at_ + (braces ? 3 : 2);
    const size_t max_digits = braces ? 8 : kind == 'x' ? 2 : kind == 'u' ? 4 : 0;
    const std::string_view digits = all_.substr(std::min(begin, all_.size()), max_digits);
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), point, kind == 'o' ? 8 : 16);
    const auto size = static_cast<size_t>(read.ptr - digits.data());
    const size_t end = begin + size + (braces ? 1 : 0);
    const bool whole = read.ec == std::errc() && (kind == 'u') == (!braces && size == 4) &&
                       (!braces || (end <= all_.size() && all_[end - 1] == '}'));
    const std::string_view written = all_.substr(at_, end - at_);
    if (!whole) not_supported(written, other);
    if (kind == 'x' && !braces && point >= 0x80) not_supported(written, "write \\x{", digits, "} for a character");
    std::array<char, 8> hexadecimal;
    const auto last = std::to_chars(hexadecimal.data(), hexadecimal.data() + hexadecimal.size(), point, 16).ptr;
    words = text("\\x{", std::string_view(hexadecimal.data(), last), "}");
    at_ = end;
    return true;
  }

  // \p{L}, \P{L}, \p{^L}.
  std::string property() {
    const size_t end = all_.find('}', at_);
    const char kind = all_[at_ + 1];
    if (at_ + 2 >= all_.size() || all_[at_ + 2] != '{' || end == all_.npos)
      not_supported(all_.substr(at_, 3), "write \\", kind, "{", all_.substr(std::min(at_ + 2, all_.size()), 1), "}");
    std::string_view name = all_.substr(at_ + 3, end - at_ - 3);
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    at_ = end + 1;
    return text("\\", (kind == 'P') != negated ? "P{" : "p{", is_script(name) ? "sc:" : "", name, "}");
  }

  void escape() {
    if (at_ + 1 == all_.size()) {
      output_ += take(1);  // PCRE2 rejects it
      return;
    }
    const char c = all_[at_ + 1];
    std::string words;
    uint32_t point = 0;
    const auto word = text("[", meaning_of("w", class_of_escape), "]");
    const auto border = [&](const char* one, const char* two) {
      return text("(?:(?<=", word, ")(?", one, word, ")|(?<!", word, ")(?", two, word, "))");
    };
    if (numbered(words, point)) {
      literal(words, point);
    } else if (c == 'p' || c == 'P') {
      atom(group().any_case ? text("(?-i:", property(), ")") : property());
    } else if (const std::string_view meaning = meaning_of(std::string_view(&c, 1), class_of_escape);
               !meaning.empty()) {
      atom(text("[", meaning, "]"));
      at_ += 2;
    } else if (c == 'W' || c == 'N' || c == 'O' || c == 'b' || c == 'B') {
      atom(c == 'W'   ? text("[^", meaning_of("w", class_of_escape), "]")
           : c == 'N' ? "[^\\n]"
           : c == 'O' ? "(?s:.)"
           : c == 'b' ? border("!", "=")
                      : border("=", "!"));
      at_ += 2;
    } else if (std::string_view("tnrfaeAzZGKRX").find(c) != std::string_view::npos) {
      atom(take(2));
    } else if (c >= '1' && c <= '9' && !(at_ + 2 < all_.size() && is_digit(all_[at_ + 2]))) {
      atom(take(2));  // backreference
    } else if (const size_t end = all_.find('>', at_);
               (c == 'k' || c == 'g') && all_.substr(at_ + 2).starts_with('<') && end != all_.npos) {
      atom(take(end + 1 - at_));
    } else if (is_letter_or_digit(c)) {
      not_supported(all_.substr(at_, 2), other);
    } else {
      ++at_;
      character("\\");
    }
  }

  // Translates [...], whose items are characters or classes.
  void set() {
    atom(take(1));
    if (next_is("^")) output_ += take(1);
    if (next_is("]")) output_ += "\\", output_ += take(1);
    while (more() && !next_is("]")) set_item();
    output_ += take(1);
  }
  void set_item() {
    const char c = all_[at_], next = at_ + 1 < all_.size() ? all_[at_ + 1] : '\0';
    std::string words;
    uint32_t point = static_cast<unsigned char>(c);
    std::string_view meaning;
    if (c == '[') {
      const size_t end = all_.find(":]", at_);
      if (next == ':' && end != all_.npos) meaning = meaning_of(all_.substr(at_ + 2, end - at_ - 2), class_of_name);
      if (meaning.empty())
        not_supported(all_.substr(at_, 2), "a class cannot contain a class; write \\[ for a bracket");
      check_case("[:");
      output_ += meaning;
      at_ = end + 2;
    } else if (next_is("&&")) {
      not_supported("&&", "write one class of the characters that are in both");
    } else if (c != '\\') {
      if (point >= 0x80) check_case(all_.substr(at_, bytes_of_character()));
      output_ += take(1);
    } else if (next == 'p' || next == 'P') {
      check_case("\\p");
      output_ += property();
    } else if (numbered(words, point)) {
      if (point >= 0x80) check_case(words);
      output_ += words;
    } else if (meaning = meaning_of(std::string_view(&next, 1), class_of_escape); !meaning.empty()) {
      if (next == 'w') check_case("\\w");
      output_ += next == 'w' ? meaning_of("word", class_of_name) : meaning;  // outside [], \w also has Latin-1 numbers
      at_ += 2;
    } else if (is_letter_or_digit(next) && std::string_view("tnrfaeb").find(next) == std::string_view::npos) {
      not_supported(all_.substr(at_, 2), other);
    } else {
      output_ += take(2);
    }
  }
  void check_case(std::string_view what) {
    if (group().any_case) not_supported(what, "a class that ignores case, (?i), may have ASCII characters only");
  }

  void open() {
    const size_t begin = output_.size();
    const auto open_with = [&](std::string_view words) {
      output_ += words;
      groups_.push_back({begin, group().any_case, group().extended});
      atom_ = none;
    };
    if (next_is("(*")) not_supported("(*", other);
    if (!next_is("(?")) return open_with(take(1));
    for (const char* const kind : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"})
      if (next_is(kind)) return open_with(take(std::string_view(kind).size()));
    if (next_is("(?#")) {
      at_ = all_.find(')', at_);
      if (at_ == all_.npos) at_ = all_.size(), output_ += "(?#";  // PCRE2 rejects it
      take(1);
    } else if (const size_t end = all_.find('>', at_); next_is("(?<") && end != all_.npos) {
      open_with(take(end + 1 - at_));
    } else {
      options();
    }
  }

  // Translates (?i-m:...), or (?i-m), which holds up to the end of the group.
  void options() {
    const std::string_view begun = all_.substr(at_, 3);
    take(2);
    Group changed{output_.size(), group().any_case, group().extended};
    std::string on, off;
    for (bool is = true; more() && !next_is(":") && !next_is(")");) {
      const char c = take(1)[0];
      if (c == '-')
        is = false;
      else if (c == 'x')
        changed.extended = is;
      else if (c == 'i')
        changed.any_case = is, (is ? on : off) += 'i';
      else if (c == 'm')
        (is ? on : off) += 's';  // Oniguruma's m: '.' matches line breaks
      else
        not_supported(begun, other);
    }
    if (!more()) not_supported(begun, other);
    output_ += text("(?", on, off.empty() ? "" : "-", off, ":");
    atom_ = none;
    if (take(1) == ":") {
      groups_.push_back(changed);
    } else {
      group().any_case = changed.any_case, group().extended = changed.extended;
      ++group().options;
    }
  }

  void end_options() { output_.append(std::exchange(group().options, 0), ')'); }
  void close() {
    if (groups_.size() > 1) {
      end_options();
      atom_ = group().begin, quantified_ = false;
      groups_.pop_back();
    }
    output_ += take(1);
  }

  // A quantifier after another one repeats the quantified atom.
  void quantify(const std::string& words, bool kind_follows) {
    if (quantified_ && atom_ != none) output_.insert(atom_, "(?:"), output_ += ')';
    output_ += words;
    if (kind_follows) output_ += take(1);
    quantified_ = true, letter_ = 0;
  }
  // Translates {n}, {n,}, {,m} or {n,m}; other braces are literals. A following + is a separate
  // quantifier, and so is a ? after {n}.
  void brace() {
    size_t end = at_ + 1;
    const auto digits = [&] {
      const size_t begin = end;
      while (end < all_.size() && is_digit(all_[end])) ++end;
      return all_.substr(begin, end - begin);
    };
    const std::string_view min_count = digits();
    const bool range = end < all_.size() && all_[end] == ',';
    if (range) ++end;
    const std::string_view max_count = range ? digits() : min_count;
    if (end == all_.size() || all_[end] != '}' || (min_count.empty() && max_count.empty())) {
      literal("\\{", '{');
      ++at_;
      return;
    }
    at_ = end + 1;
    quantify(text("{", min_count.empty() ? "0" : min_count, range ? "," : "", range ? max_count : "", "}"),
             range && next_is("?"));
  }

  std::string_view all_;
  size_t at_ = 0;
  std::string output_;
  std::vector<Group> groups_ = {Group{}};
  size_t atom_ = none;       // offset of the last atom in output_
  bool quantified_ = false;  // the atom has a quantifier
  char letter_ = 0;          // the letter before, if case is ignored
};

}  // namespace

std::string pcre2_of_oniguruma(std::string_view expression) { return Translation(expression).output(); }

}  // namespace orrery::models
