#include "models/formats/shown_text.h"

#include <algorithm>

#include "engine/types/ascii.h"
#include "models/formats/unicode.h"

namespace orrery::models {
namespace {

constexpr char digits[] = "0123456789abcdef";

// Returns whether a character is invisible and affects others: line separators, directions, marks.
bool changes_display(char32_t point) {
  return point == 0x2028 || point == 0x2029 || point == 0x061C || (point >= 0x200E && point <= 0x200F) ||
         (point >= 0x202A && point <= 0x202E) || (point >= 0x2066 && point <= 0x2069);
}

ShownCharacter escaped(char kind, unsigned number, int count, size_t read) {
  ShownCharacter shown{{'\\', kind}, 2, read};
  for (int digit = count; digit-- > 0;) shown.bytes[shown.size++] = digits[number >> 4 * digit & 15];
  return shown;
}

}  // namespace

ShownCharacter shown_character(std::string_view text, size_t at) noexcept {
  const auto byte = static_cast<unsigned char>(text[at]);
  const auto character = character_if_any(text, at);
  if (!character || byte < 0x20 || byte == 0x7F) return escaped('x', byte, 2, 1);
  const char32_t point = character->point;
  if ((point >= 0x80 && point < 0xA0) || changes_display(point)) return escaped('u', point, 4, character->bytes);
  ShownCharacter shown{{}, character->bytes, character->bytes};
  std::copy_n(text.begin() + static_cast<std::ptrdiff_t>(at), shown.size, shown.bytes.begin());
  return shown;
}

namespace {

std::string shown(std::string_view text, std::string_view kept) {
  std::string all;
  for (size_t at = 0; at < text.size();) {
    const ShownCharacter next = shown_character(text, at);
    if (kept.find(text[at]) != std::string_view::npos)
      all += text[at];
    else
      all += next.text();
    at += next.read;
  }
  return all;
}

}  // namespace

std::string for_terminal(std::string_view text) { return shown(text, ""); }
std::string for_terminal_lines(std::string_view text) { return shown(text, "\n\t"); }

std::string for_html(std::string_view text) {
  std::string all;
  for (const char c : text)
    all += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
  return all;
}

// An entity is never parsed as Markdown. An underscore between letters needs no escape.
std::string for_markdown(std::string_view text) {
  std::string line(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  line = for_terminal(line);
  const auto letter = [&](size_t at) {
    return at < line.size() && (is_letter_or_digit(line[at]) || (line[at] & 0x80) != 0);
  };
  const size_t number = line.find_first_not_of("0123456789");  // the end of the leading digits
  const auto begins_list = [&](size_t at) {
    const char c = line[at];
    const bool mark = at == 0 ? c == '-' || c == '+' || c == '=' : at == number && (c == '.' || c == ')');
    return mark && at + 1 < line.size() && line[at + 1] == ' ';
  };
  std::string all;
  for (size_t at = 0; at < line.size(); ++at) {
    const char c = line[at];
    const bool mark = std::string_view("<>&|\\`*[]#~$").find(c) != std::string_view::npos ||
                      (c == '_' && !(letter(at - 1) && letter(at + 1))) || begins_list(at);
    all += mark ? "&#" + std::to_string(static_cast<int>(c)) + ";" : std::string(1, c);
  }
  return all;
}

std::string code_for_markdown(std::string_view text) {
  const bool plain =
      !text.empty() && text.find_first_of("`|\\\n<") == std::string_view::npos && for_terminal(text) == text;
  return plain ? "`" + std::string(text) + "`" : "<code>" + for_markdown(text) + "</code>";
}

std::string link_for_markdown(std::string_view path) {
  std::string all;
  for (const char c : path) {
    const bool plain = is_letter_or_digit(c) || std::string_view("_-./~,+=@").find(c) != std::string_view::npos;
    const auto byte = static_cast<unsigned char>(c);
    all += plain ? std::string(1, c) : std::string{'%', "0123456789ABCDEF"[byte >> 4], "0123456789ABCDEF"[byte & 15]};
  }
  return all;
}

}  // namespace orrery::models
