// Tokenizer of the 256 bytes.
#include <algorithm>

#include "models/data/tokenizer.h"

namespace orrery::models {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  std::string name() const override { return "byte"; }
  int64_t size() const override { return 256; }
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> tokens(text.size());
    std::transform(text.begin(), text.end(), tokens.begin(), [](char c) { return static_cast<unsigned char>(c); });
    return tokens;
  }
  size_t encode_beginning(std::string_view text, std::vector<int32_t>& tokens) const override {
    tokens = encode(text);
    return text.size();
  }
  std::string decode(std::span<const int32_t> tokens) const override {
    std::string text;
    for (const int32_t token : tokens) {
      check_token(token, size());
      text.push_back(static_cast<char>(token));
    }
    return text;
  }
  std::string save() const override { return R"({"name":"byte"})"; }
};

REGISTER_TOKENIZER(byte, {.name = "byte",
                          .description = "the 256 bytes: any text, any language",
                          .make = [](const TextChunks&) -> std::unique_ptr<Tokenizer> {
                            return std::make_unique<ByteTokenizer>();
                          },
                          .restore = [](const std::string&) -> std::unique_ptr<Tokenizer> {
                            return std::make_unique<ByteTokenizer>();
                          },
                          .max_bytes_per_token = 1});

}  // namespace
}  // namespace orrery::models
