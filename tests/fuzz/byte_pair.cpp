// A tokenizer.json, as others write it, whole or damaged.
#include "models/data/tokenizer.h"
#include "tests/fuzz/format.h"

namespace {

using namespace fuzz;
using namespace orrery::models;

void read_tokenizer_json(const std::string& folder, std::string_view bytes) {
  const std::string path = folder + "/tokenizer.json";
  put(path, bytes);
  const auto tokenizer = make_tokenizer(path, "");
  const std::string text = "It's 12 o'clock,\n\n  na\xc3\xafve <|endoftext|>\xff";
  const std::vector<int32_t> tokens = tokenizer->encode(text);
  promise(tokenizer->decode(tokens) == text, "encoded and decoded it is another text");
  promise(restore_tokenizer(tokenizer->save())->encode(text) == tokens, "a restored tokenizer gives other tokens");
}

REGISTER_FORMAT(byte_pair, {.name = "byte_pair",
                            .readers = {"models/data/tokenizers/byte_pair.cpp", "models/data/byte_pairs.cpp",
                                        "models/data/pieces.cpp", "models/json.cpp"},
                            .read = read_tokenizer_json,
                            .memory_multiple = 256,
                            .memory_base = 1 << 20,
                            .words = {"\"merges\":",
                                      "\"vocab\":",
                                      "\"added_tokens\":",
                                      "\"Regex\":",
                                      "\"Split\"",
                                      "\"Sequence\"",
                                      "\"ByteLevel\"",
                                      "null",
                                      "true",
                                      "false",
                                      "[",
                                      "]",
                                      "{",
                                      "}",
                                      "\\\\p{L}+",
                                      "(?i:",
                                      "(a+)+$",
                                      "\\u0120",
                                      "\xc4\xa0",
                                      "-1",
                                      "419",
                                      "420"}});

}  // namespace
