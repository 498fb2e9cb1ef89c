#include "models/settings/toml.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <string>
#include <system_error>

#include "engine/types/ascii.h"
#include "engine/types/check.h"
#include "models/formats/gzip.h"
#include "models/formats/unicode.h"

namespace orrery::models {
namespace {

constexpr size_t max_brackets = 16, max_dots = 16, max_items = 2'000, max_word_length = 100;

bool in_key(char c) { return is_letter_or_digit(c) || c == '_' || c == '-'; }
bool in_word(char c) { return in_key(c) || c == '+' || c == '.' || c == ':'; }
bool opens_text(char c) { return c == '"' || c == '\''; }

// true, false, inf, nan, or a decimal number, with _ between its digits: 1_000, -0.5, 1e-4.
bool is_plain_value(std::string_view word) {
  if (word == "true" || word == "false") return true;
  const auto take = [&](std::string_view any) {
    const bool found = !word.empty() && any.find(word[0]) != std::string_view::npos;
    if (found) word.remove_prefix(1);
    return found;
  };
  const auto digits = [&] {
    size_t length = 0;
    while (length < word.size() && (is_digit(word[length]) || (length > 0 && word[length] == '_'))) ++length;
    const std::string_view all = word.substr(0, length);
    word.remove_prefix(length);
    return length > 0 && all.back() != '_' && all.find("__") == std::string_view::npos;
  };
  take("+-");
  if (word == "inf" || word == "nan") return true;
  if (word.size() > 1 && word[0] == '0' && (is_digit(word[1]) || word[1] == '_')) return false;
  if (!digits()) return false;
  if (take(".") && !digits()) return false;
  if (take("eE")) {
    take("+-");
    if (!digits()) return false;
  }
  return word.empty();
}

// Returns what is wrong with a number outside the machine's range; empty if it is in range.
std::string_view beyond_numbers(std::string_view word) {
  std::string digits;
  std::copy_if(word.begin() + word.starts_with('+'), word.end(), std::back_inserter(digits),
               [](char c) { return c != '_'; });
  const bool real = digits.find_first_of(".eE") != std::string::npos;
  const auto is_beyond = [&](auto x) {
    return std::from_chars(digits.data(), digits.data() + digits.size(), x).ec == std::errc::result_out_of_range;
  };
  if (!(real ? is_beyond(0.0) : is_beyond(int64_t{0}))) return "";
  const bool small = digits.find("e-") != std::string::npos || digits.find("E-") != std::string::npos;
  return small ? "too close to 0; write 0, or a larger one" : "too large; write a smaller one";
}

// A scan of the text that checks its syntax in one pass, but not its meaning.
class Scan {
 public:
  Scan(std::string_view text, std::string_view path) : text_(text), path_(path) {}

  void run() {
    if (text_.size() > max_toml_bytes)
      refuse(orrery::text("the file has ", text_.size(), " bytes; at most ", max_toml_bytes, " bytes are allowed"));
    if (text_.starts_with(byte_order_mark)) at_ = byte_order_mark.size();
    while (at_ < text_.size()) step(text_[at_]);
    if (state_ == State::value && !in_list()) refuse(no_value);
  }

 private:
  enum class State { line_begin, key, header, value, after_value };
  static constexpr std::string_view no_value = "a value is missing after '=', ',' or '['",
                                    control_character = "invalid control character; remove it";

  void step(char c) {
    if (opens_text(c)) return text_in_quotes(c);
    if (in_word(c)) return word();
    if (c == '#') return comment();
    ++at_;
    switch (c) {
      case ' ':
      case '\t':
        return;
      case '\r':
        if (at_ == text_.size() || text_[at_] != '\n') refuse(control_character);
        return;
      case '\n':
        return line_break();
      case '=':
        state_ = State::value, dots_ = 0;
        return count_item();
      case ',':
        return comma();
      case '[':
        if (state_ == State::line_begin) return header();
        return open(c);
      case '{':
        return open(c);
      case ']':
      case '}':
        return close(c);
      default:
        control(c);
        refuse("invalid character outside of quotes; write text in quotes");
    }
  }

  bool in_list() const { return depth_ > 0 && open_[depth_ - 1] == '['; }

  void line_break() {
    if (state_ == State::value && !in_list()) refuse(no_value);
    if (depth_ == 0) state_ = State::line_begin, dots_ = 0;
    ++line_;
  }
  // The parser assumes that a name follows.
  void header() {
    if (at_ < text_.size() && text_[at_] == '[') ++at_;
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    if (at_ == text_.size() || !(in_key(text_[at_]) || opens_text(text_[at_])))
      refuse("a table has no name; write [NAME]");
    state_ = State::header;
    count_item();
  }
  void open(char bracket) {
    if (state_ != State::value) refuse(orrery::text("'", bracket, "' is not allowed here; it must begin a value"));
    if (depth_ == max_brackets) refuse(orrery::text("brackets are nested more than ", max_brackets, " levels deep"));
    open_[depth_++] = bracket;
    state_ = bracket == '[' ? State::value : State::key;
  }
  void close(char bracket) {
    if (state_ == State::header) return;
    if (depth_ == 0 || open_[depth_ - 1] != (bracket == ']' ? '[' : '{'))
      refuse("a closing bracket has no matching opening bracket");
    if (state_ == State::value && !in_list()) refuse(no_value);
    --depth_;
    state_ = State::after_value;
  }
  void comma() {
    if (state_ == State::value) refuse(no_value);
    if (depth_ == 0) refuse("a comma outside of brackets; write a list in brackets, [1, 2]");
    state_ = in_list() ? State::value : State::key;
    count_item();
  }
  void comment() {
    if (state_ == State::value && !in_list()) refuse(no_value);
    for (; at_ < text_.size() && text_[at_] != '\n'; ++at_) control(text_[at_]);
  }

  void word() {
    const size_t begin = at_;
    while (at_ < text_.size() && in_word(text_[at_])) ++at_;
    const std::string_view all = text_.substr(begin, at_ - begin);
    if (state_ == State::value) {
      if (all.size() > max_word_length)
        refuse(orrery::text("a value without quotes has more than ", max_word_length, " characters"));
      if (!is_plain_value(all)) refuse("a value must be a number, true, false or text in quotes");
      if (const std::string_view beyond = beyond_numbers(all); !beyond.empty())
        refuse(orrery::text("the number ", all, " is ", beyond));
      state_ = State::after_value;
      return;
    }
    dots_ += static_cast<size_t>(std::count(all.begin(), all.end(), '.'));
    if (dots_ > max_dots) refuse(orrery::text("a key has more than ", max_dots, " dots"));
    if (all.size() > max_word_length)
      refuse(orrery::text("a key without quotes has more than ", max_word_length, " characters"));
    if (state_ == State::line_begin) state_ = State::key;
  }

  // Reads text from an opening quote to after the closing one; three quotes: over several lines.
  void text_in_quotes(char quote) {
    const std::string_view three = quote == '"' ? "\"\"\"" : "'''";
    const bool lines = text_.substr(at_, 3) == three;
    at_ += lines ? 3 : 1;
    const auto ends = [&] { return lines ? text_.substr(at_, 3) == three : text_[at_] == quote; };
    while (at_ < text_.size() && !ends()) {
      const char c = text_[at_];
      if (c == '\n' && !lines) refuse("text in quotes has no closing quote");
      control(c);
      line_ += c == '\n';
      const bool escape = c == '\\' && quote == '"';
      if (escape &&
          (at_ + 1 == text_.size() || std::string_view("btnfr\"\\uU").find(text_[at_ + 1]) == std::string_view::npos))
        refuse("invalid escape after a backslash; write \\\\ for a backslash");
      at_ += escape ? 2 : 1;
    }
    if (at_ >= text_.size()) refuse("text in quotes has no closing quote");
    at_ += lines ? 3 : 1;
    while (lines && at_ < text_.size() && text_[at_] == quote) ++at_;  // up to two more quotes belong to the text
    state_ = state_ == State::value ? State::after_value : state_ == State::line_begin ? State::key : state_;
  }

  void count_item() {
    if (++items_ > max_items) refuse(orrery::text("more than ", max_items, " items (keys, tables and list items)"));
  }
  void control(char c) const {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\r' && c != '\t') || byte == 0x7F) refuse(control_character);
  }
  [[noreturn]] void refuse(std::string_view what) const { fail(path_, ":", line_, ": ", what); }

  std::string_view text_, path_;
  size_t at_ = 0, depth_ = 0, dots_ = 0, items_ = 0;
  char open_[max_brackets] = {};
  int line_ = 1;
  State state_ = State::line_begin;
};

}  // namespace

void check_toml(std::string_view text, std::string_view path) {
  check(!is_gzip(text), path, " is compressed with gzip, but settings must be plain text; unpack it first");
  Scan(text, path).run();
}

}  // namespace orrery::models
