// The Unicode characters of a text, in the order of their code points.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "engine/types/check.h"
#include "models/data/tokenizer.h"
#include "models/formats/json.h"
#include "models/formats/unicode.h"

namespace orrery::models {
namespace {

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
      if (token < 0)  // check() would always build its message, which takes longer than a token
        fail("tokenizer: the vocabulary has no ", describe(c.point), ", the character at byte ", at,
             "; leave it out, or train on a text that has it");
      tokens.push_back(token);
      at += c.bytes;
    }
    return tokens;
  }
  size_t encode_beginning(std::string_view text, std::vector<int32_t>& tokens) const override {
    const size_t end = end_of_characters(text);
    tokens = encode(text.substr(0, end));
    return end;
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
    return json_text(Json{{"name", name()}, {"characters", characters}});
  }

 private:
  int32_t token_of(char32_t point) const {  // -1 if there is none
    if (point < 128) return ascii_[point];
    const auto found = std::lower_bound(points_.begin(), points_.end(), point);
    return found == points_.end() || *found != point ? -1 : static_cast<int32_t>(found - points_.begin());
  }

  std::vector<char32_t> points_;         // sorted; a token is an index
  std::array<int32_t, 128> ascii_ = {};  // fast lookup of the most frequent characters
};

std::unique_ptr<Tokenizer> character_tokenizer(const TextChunks& text) {
  std::vector<char32_t> points;
  std::vector<bool> seen(0x110000);
  text.each([&](std::string_view chunk, uint64_t before) {
    for (size_t at = 0; at < chunk.size();) {
      const Character c = character_at(chunk, at, before);
      if (!seen[c.point]) points.push_back(c.point);
      seen[c.point] = true;
      at += c.bytes;
    }
  });
  return std::make_unique<CharacterTokenizer>(std::move(points));
}

REGISTER_TOKENIZER(character, {.name = "character",
                               .description = "the Unicode characters of the text, in the order of their code points",
                               .make = character_tokenizer,
                               .restore =
                                   [](const std::string& json) {
                                     const std::string characters = text_member(parse_json(json, unreadable_tokenizer),
                                                                                "characters", unreadable_tokenizer);
                                     check(!characters.empty(), unreadable_tokenizer, ": it has no characters");
                                     return character_tokenizer(characters);
                                   },
                               .max_bytes_per_token = 4});

}  // namespace
}  // namespace orrery::models
