// llm.c's files of tokens: a header of 256 numbers, then tokens.
#include <algorithm>

#include "engine/types/check.h"
#include "models/data/text_format.h"
#include "models/data/token_sequence.h"

namespace orrery::models {
namespace {

std::optional<TokenLayout> layout(const std::string& file, std::span<const std::byte> begin) {
  TokenHeader header = {};
  if (begin.size() < sizeof header) return std::nullopt;
  std::copy_n(begin.begin(), sizeof header, std::as_writable_bytes(std::span(header)).begin());
  for (const LlmCVersion& known : {llm_c_16_bit, llm_c_32_bit}) {
    if (header[0] != known.magic) continue;
    check(header[1] == known.version, "tokens: ", file, " has format version ", header[1], "; only version ",
          known.version, " is supported");
    return TokenLayout{.format = "llm_c_tokens", .width = known.width, .first = sizeof header, .count = header[2]};
  }
  return std::nullopt;
}

REGISTER_TEXT_FORMAT(llm_c_tokens, {.name = "llm_c_tokens",
                                    .description = "llm.c's .bin: a header of 256 numbers, then tokens of 16 or 32 "
                                                   "bits; requires --tokenizer",
                                    .layout = layout});

}  // namespace
}  // namespace orrery::models
