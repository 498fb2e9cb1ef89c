// A tokenizer.json of another program, intact or damaged.
#include "engine/types/check.h"
#include "models/data/byte_pairs.h"
#include "models/data/tokenizer.h"
#include "tests/fuzz/format.h"

namespace {

using namespace fuzz;
using namespace orrery::models;
using orrery::text;

void read_tokenizer_json(const std::string& folder, std::string_view bytes) {
  const std::string path = folder + "/tokenizer.json";
  put(path, bytes);
  const auto tokenizer = make_tokenizer(path, "");
  const std::string text = "It's 12 o'clock,\n\n  na\xc3\xafve <|endoftext|>\xff";
  const std::vector<int32_t> tokens = tokenizer->encode(text);
  const bool strips = bytes.find("strip") != bytes.npos;  // white space around a token
  promise(strips || tokenizer->decode(tokens) == text, "decoding the tokens gives another text");
  promise(restore_tokenizer(tokenizer->save())->encode(text) == tokens, "a restored tokenizer gives other tokens");
}

REGISTER_FORMAT(byte_pair,
                {.name = "byte_pair",
                 .readers = {"models/data/tokenizers/byte_pair.cpp", "models/data/byte_pairs.cpp",
                             "models/data/oniguruma.cpp", "models/data/pretokenizer.cpp", "models/formats/json.cpp"},
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

// Files next to a vocabulary of the 256 bytes: names with ids, or else settings with names.
void read_added_tokens(const std::string& folder, std::string_view bytes) {
  std::string vocabulary = "{";
  for (int byte = 0; byte < 256; ++byte)
    vocabulary += text(byte ? ", \"" : "\"", byte == '"' || byte == '\\' ? "\\" : "",
                       printable_bytes(std::string(1, static_cast<char>(byte))), "\": ", byte);
  put(folder + "/merges.txt", "a b\n");
  put(folder + "/vocab.json", vocabulary + ", \"ab\": 256}");
  const auto read = [&] {
    const auto tokenizer = make_tokenizer(folder, "");
    const std::string words = "the <|user|> cab<s>\xff" + std::string(bytes.substr(0, 100));
    const std::vector<int32_t> tokens = tokenizer->encode(words);
    const bool strips = bytes.find("strip") != bytes.npos;  // white space around a token
    promise(strips || tokenizer->decode(tokens) == words, "decoding the tokens gives another text");
    promise(restore_tokenizer(tokenizer->save())->encode(words) == tokens, "a restored tokenizer gives other tokens");
  };
  put(folder + "/added_tokens.json", bytes);
  try {
    read();
  } catch (const orrery::Error&) {
    put(folder + "/added_tokens.json", "{}");
    put(folder + "/tokenizer_config.json", bytes), put(folder + "/special_tokens_map.json", bytes);
    read();
  }
}

REGISTER_FORMAT(added_tokens, {.name = "added_tokens",
                               .readers = {"models/data/added_tokens.cpp", "models/data/json_members.cpp"},
                               .read = read_added_tokens,
                               .memory_multiple = 256,
                               .memory_base = 1 << 20,
                               .words = json_words({"\"added_tokens_decoder\":", "\"content\":", "\"<|user|>\"",
                                                    "\"pad_token\":", "\"lstrip\":", "\"257\"", "4351", "4352"})});

}  // namespace
