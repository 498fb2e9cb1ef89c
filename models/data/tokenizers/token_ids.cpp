// Token ids as text, " 15 3 7", for imported models without a tokenizer.
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "models/data/tokenizer.h"
#include "models/formats/json.h"

namespace orrery::models {
namespace {

constexpr const char* stored_name = "numbers";  // in checkpoints; one name keeps the hash of a tokenizer

class TokenIdsTokenizer final : public Tokenizer {
 public:
  explicit TokenIdsTokenizer(int64_t size) : size_(size) {
    check(size_ >= 1 && size_ <= 1'048'576, "token_ids: vocabulary size is ", size_, "; it must be 1 to 1048576");
  }
  std::string name() const override { return "token_ids"; }
  int64_t size() const override { return size_; }
  std::vector<int32_t> encode(std::string_view text) const override {
    static constexpr std::string_view space = " \t\r\n";
    std::vector<int32_t> tokens;
    for (size_t at = 0; (at = text.find_first_not_of(space, at)) != std::string_view::npos;) {
      const size_t end = std::min(text.find_first_of(space, at), text.size());
      const std::string_view word = text.substr(at, end - at);
      int32_t token = 0;
      const auto read = std::from_chars(word.data(), word.data() + word.size(), token);
      check(read.ec == std::errc() && read.ptr == word.data() + word.size(), "token_ids: '", word.substr(0, 40),
            "' is not a token; write the text as numbers with spaces between them");
      check_token(token, size_);
      tokens.push_back(token);
      at = end;
    }
    return tokens;
  }
  std::string decode(std::span<const int32_t> tokens) const override {
    std::string text;
    for (const int32_t token : tokens) {
      check_token(token, size_);
      text += ' ' + std::to_string(token);
    }
    return text;
  }
  bool decodes_exactly(std::span<const int32_t>) const override { return false; }  // a number is not characters
  std::string save() const override { return saved_token_ids(size_); }

 private:
  int64_t size_;
};

REGISTER_TOKENIZER(token_ids,
                   {.name = "token_ids",
                    .description = "token ids with spaces, for imported models without a tokenizer",
                    .restore = [](const std::string& json) -> std::unique_ptr<Tokenizer> {
                      const std::string what(unreadable_tokenizer);
                      return std::make_unique<TokenIdsTokenizer>(
                          whole_number_member(parse_json(json, what), "size", what));
                    }},
                   {stored_name});

}  // namespace

std::string saved_token_ids(int64_t vocabulary) {
  return text(R"({"name":")", stored_name, R"(","size":)", vocabulary, "}");
}

}  // namespace orrery::models
