#include "models/data/bleu.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/types/ascii.h"
#include "engine/types/check.h"
#include "models/formats/replaced.h"
#include "models/formats/unicode.h"

namespace orrery::models {
namespace {

constexpr size_t orders = 4;

bool is_stop(char c) { return c == '.' || c == ','; }
// ASCII symbols that are tokens in any position: all except ' , - and .
bool is_sign(char c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') ||
         (c >= ':' && c <= '@') || c == '/';
}
// Characters at which Python's str.split splits: Unicode's White_Space and the ASCII separators.
bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

// Puts spaces around one character of each pair that `is_pair` accepts, from the left and without
// overlap. For a multi-byte character, its byte next to the other character counts.
template <class IsPair>
std::string with_spaces_in_pairs(const std::string& text, const IsPair& is_pair, const char* before,
                                 const char* after) {
  std::string spaced;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i + 1 == text.size() || !is_pair(text[i], text[i + 1])) {
      spaced += text[i];
      continue;
    }
    spaced += before;
    spaced += text[i];
    spaced += ' ';
    spaced += text[++i];
    spaced += after;
  }
  return spaced;
}

std::vector<std::string> split_at_spaces(std::string_view text) {
  std::vector<std::string> words(1);
  for (size_t at = 0; at < text.size();) {
    const auto character = character_if_any(text, at);
    const size_t bytes = character ? character->bytes : 1;
    if (!character || !is_space(character->point))
      words.back() += text.substr(at, bytes);
    else if (!words.back().empty())
      words.emplace_back();
    at += bytes;
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

using Counts = std::map<std::string, int64_t>;  // by n-gram: its tokens joined by spaces
Counts count(const std::vector<std::string>& tokens, size_t order) {
  Counts counts;
  for (size_t first = 0; first + order <= tokens.size(); ++first) {
    std::string gram = tokens[first];
    for (size_t i = 1; i < order; ++i) gram += " " + tokens[first + i];
    ++counts[gram];
  }
  return counts;
}

}  // namespace

std::vector<std::string> tokens_13a(std::string_view line) {
  std::string text = replaced(replaced(replaced(std::string(line), "<skipped>", ""), "-\n", ""), "\n", " ");
  text = replaced(replaced(replaced(replaced(text, "&quot;", "\""), "&amp;", "&"), "&lt;", "<"), "&gt;", ">");
  std::string spaced = " ";
  for (const char c : text) spaced += is_sign(c) ? std::string{' ', c, ' '} : std::string{c};
  spaced += " ";
  const auto after_no_digit = [](char a, char b) { return !is_digit(a) && is_stop(b); };
  const auto before_no_digit = [](char a, char b) { return is_stop(a) && !is_digit(b); };
  const auto dash_after_digit = [](char a, char b) { return is_digit(a) && b == '-'; };
  spaced = with_spaces_in_pairs(spaced, after_no_digit, "", " ");
  spaced = with_spaces_in_pairs(spaced, before_no_digit, " ", "");
  return split_at_spaces(with_spaces_in_pairs(spaced, dash_after_digit, "", " "));
}

Bleu bleu(std::span<const std::string> translations, std::span<const std::string> references) {
  check(translations.size() == references.size(), "bleu: the number of translations (", translations.size(),
        ") must equal the number of references (", references.size(), ")");
  Bleu result;
  std::array<int64_t, orders> matches{}, grams{};
  for (size_t i = 0; i < translations.size(); ++i) {
    const std::vector<std::string> tokens = tokens_13a(translations[i]), expected = tokens_13a(references[i]);
    result.tokens += static_cast<int64_t>(tokens.size());
    result.reference_tokens += static_cast<int64_t>(expected.size());
    for (size_t n = 0; n < orders; ++n) {
      const Counts known = count(expected, n + 1);
      for (const auto& [gram, times] : count(tokens, n + 1)) {
        const auto found = known.find(gram);
        grams[n] += times;
        if (found != known.end()) matches[n] += std::min(times, found->second);
      }
    }
  }
  if (result.tokens < result.reference_tokens)
    result.brevity_penalty =
        result.tokens ? std::exp(1 - static_cast<double>(result.reference_tokens) / static_cast<double>(result.tokens))
                      : 0;
  if (matches[0] == 0) return result;  // then no higher order has a match either
  double without_match = 1, log_sum = 0;
  for (size_t n = 0; n < orders; ++n) {
    if (grams[n] == 0) return result;
    const double some = matches[n] ? static_cast<double>(matches[n]) : 1 / (without_match *= 2);
    result.precisions[n] = 100 * some / static_cast<double>(grams[n]);
    log_sum += std::log(result.precisions[n]);
  }
  result.score = result.brevity_penalty * std::exp(log_sum / orders);
  return result;
}

}  // namespace orrery::models
