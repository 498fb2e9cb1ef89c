// nanoGPT's files of tokens: 16-bit numbers, without a header.
#include "models/data/text_format.h"

namespace orrery::models {
namespace {

std::optional<TokenLayout> layout(const std::string&, std::span<const std::byte>) {
  return TokenLayout{.format = "nanogpt_tokens"};
}

REGISTER_TEXT_FORMAT(nanogpt_tokens, {.name = "nanogpt_tokens",
                                      .description = "nanoGPT's .bin: consecutive 16-bit tokens; one file, or a folder "
                                                     "with train.bin and val.bin; requires --tokenizer",
                                      .layout = layout,
                                      .of_any_content = true});

}  // namespace
}  // namespace orrery::models
