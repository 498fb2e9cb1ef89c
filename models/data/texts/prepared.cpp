// Files of tokens: the output of `orrery prepare`, with tokens.json, and the same files without it,
// as nanoGPT and llm.c write them.
#include "models/data/prepared.h"
#include "models/data/text_format.h"

namespace orrery::models {
namespace {

REGISTER_TEXT_FORMAT(prepared, {.name = "prepared",
                                .description = "output of `orrery prepare`: train.bin, val.bin, and tokens.json with "
                                               "the tokenizer and the size and hash of each file",
                                .reads = [](const TextPath& path) { return is_prepared(path.path()); },
                                .read_tokens = read_prepared,
                                .tokenizer = tokenizer_of_prepared});

}  // namespace
}  // namespace orrery::models
