#include "models/data/tokenizer.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

#include "engine/base/check.h"
#include "engine/base/files.h"
#include "models/json.h"

namespace orrery::models {
namespace {

constexpr std::string_view unreadable = "tokenizer: cannot be restored";

struct Character {
  char32_t point;
  size_t bytes;
};

// The character that begins at byte `at`.  Overlong forms, halves of pairs and points above U+10FFFF are no UTF-8.
Character character_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x80) return {first, 1};
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  static constexpr std::array<char32_t, 5> smallest = {0, 0, 0x80, 0x800, 0x10000};
  char32_t point = first & (0xFFu >> (length + 1));
  bool valid = first >= 0xC0 && first < 0xF8;
  for (size_t i = 1; i < length; ++i) {
    valid = valid && (byte(i) & 0xC0u) == 0x80;
    point = point << 6 | (byte(i) & 0x3Fu);
  }
  valid = valid && point >= smallest[length] && point <= 0x10FFFF && (point < 0xD800 || point > 0xDFFF);
  check(valid, "tokenizer: the text is not UTF-8 at byte ", at, "; convert it, or use tokenizer=byte");
  return {point, length};
}

std::string utf8(char32_t point) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (point >> shift & 0x3F)); };
  if (point < 0x80) return {static_cast<char>(point)};
  if (point < 0x800) return {static_cast<char>(0xC0 | point >> 6), tail(0)};
  if (point < 0x10000) return {static_cast<char>(0xE0 | point >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | point >> 18), tail(12), tail(6), tail(0)};
}

std::string describe(char32_t point) {  // 'é' (U+00E9); control characters by number alone
  char number[16];
  std::snprintf(number, sizeof(number), "U+%04X", static_cast<unsigned>(point));
  const bool control = point < 0x20 || (point >= 0x7F && point < 0xA0);
  return control ? number : text("'", utf8(point), "' (", number, ")");
}

void check_token(int32_t token, int64_t size) {
  check(token >= 0 && token < size, "tokenizer: ", token, " is no token; there are 0 to ", size - 1);
}

class CharacterTokenizer final : public Tokenizer {
 public:
  explicit CharacterTokenizer(std::vector<char32_t> points) : points_(std::move(points)) {
    std::sort(points_.begin(), points_.end());
    points_.erase(std::unique(points_.begin(), points_.end()), points_.end());
    ascii_.fill(-1);
    for (size_t i = 0; i < points_.size(); ++i)
      if (points_[i] < 128) ascii_[points_[i]] = static_cast<int32_t>(i);
  }
  std::string name() const override { return "character"; }
  int64_t size() const override { return static_cast<int64_t>(points_.size()); }

  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> tokens;
    tokens.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      const Character c = character_at(text, at);
      const int32_t token = token_of(c.point);
      check(token >= 0, "tokenizer: the vocabulary has no ", describe(c.point), ", the character at byte ", at,
            "; leave it out, or train on a text that has it");
      tokens.push_back(token);
      at += c.bytes;
    }
    return tokens;
  }
  std::string decode(std::span<const int32_t> tokens) const override {
    std::string text;
    for (const int32_t token : tokens) {
      check_token(token, size());
      text += utf8(points_[static_cast<size_t>(token)]);
    }
    return text;
  }
  std::string save() const override {
    std::string characters;
    for (const char32_t point : points_) characters += utf8(point);
    return Json{{"name", name()}, {"characters", characters}}.dump();
  }

 private:
  int32_t token_of(char32_t point) const {  // -1 if there is none
    if (point < 128) return ascii_[point];
    const auto found = std::lower_bound(points_.begin(), points_.end(), point);
    return found == points_.end() || *found != point ? -1 : static_cast<int32_t>(found - points_.begin());
  }

  std::vector<char32_t> points_;         // sorted; a token is a place here
  std::array<int32_t, 128> ascii_ = {};  // most of most texts, without a search
};

std::unique_ptr<Tokenizer> character_tokenizer(std::string_view text) {
  std::vector<char32_t> points;
  std::vector<bool> seen(0x110000);
  for (size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    if (!seen[c.point]) points.push_back(c.point);
    seen[c.point] = true;
    at += c.bytes;
  }
  return std::make_unique<CharacterTokenizer>(std::move(points));
}

class ByteTokenizer final : public Tokenizer {
 public:
  std::string name() const override { return "byte"; }
  int64_t size() const override { return 256; }
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> tokens(text.size());
    std::transform(text.begin(), text.end(), tokens.begin(), [](char c) { return static_cast<unsigned char>(c); });
    return tokens;
  }
  std::string decode(std::span<const int32_t> tokens) const override {
    std::string text;
    for (const int32_t token : tokens) {
      check_token(token, size());
      text.push_back(static_cast<char>(token));
    }
    return text;
  }
  std::string save() const override { return Json{{"name", name()}}.dump(); }
};

std::unique_ptr<Tokenizer> byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace

Registry<TokenizerEntry>& tokenizers() {
  static Registry<TokenizerEntry> all("tokenizer");
  return all;
}

[[maybe_unused]] static const bool registered_tokenizers =
    (tokenizers().add(
         {"character", "the Unicode characters of the text, in the order of their code points", character_tokenizer,
          [](const std::string& json) {
            const std::string characters = text_member(parse_json(json, unreadable), "characters", unreadable);
            check(!characters.empty(), unreadable, ": it has no characters");
            return character_tokenizer(characters);
          }}),
     tokenizers().add({"byte", "the 256 bytes: any text, any language",
                       [](std::string_view) { return byte_tokenizer(); },
                       [](const std::string&) { return byte_tokenizer(); }}),
     true);

std::unique_ptr<Tokenizer> make_tokenizer(std::string_view name, const std::string& path) {
  const TokenizerEntry& entry = tokenizers().at(name);
  const std::string text = read_file(path);
  try {
    return entry.make(text);
  } catch (const Error& error) {
    fail("text: ", path, ": ", error.what());
  }
}

std::unique_ptr<Tokenizer> restore_tokenizer(const std::string& json) {
  return tokenizers().at(text_member(parse_json(json, unreadable), "name", unreadable)).restore(json);
}

}  // namespace orrery::models
