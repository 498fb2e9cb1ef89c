// Token files as nanoGPT and llm.c write them, intact or damaged.
#include "models/data/prepared.h"

#include <filesystem>

#include "models/data/text_format.h"
#include "tests/fuzz/format.h"

namespace {

using namespace fuzz;
using namespace orrery::models;

void read_tokens(const std::string& folder, std::string_view bytes) {
  constexpr int64_t vocabulary = 300;
  const std::string path = folder + "/tokens.bin", copy = folder + "/copy.bin";
  put(path, bytes);
  const PreparedTokens prepared = read_prepared(path, vocabulary);
  promise(prepared.fingerprint.bytes == bytes.size(), "bytes are lost");
  const std::vector<int32_t> tokens = prepared.train.to_vector();
  for (const int32_t token : tokens) promise(token >= 0 && token < vocabulary, "a token beyond the vocabulary");
  // Two shards with these bytes hold the tokens twice.
  const std::string parts = folder + "/shards";
  std::filesystem::create_directories(parts);
  put(parts + "/part_0.bin", bytes), put(parts + "/part_1.bin", bytes);
  const PreparedTokens shards = token_format_of(TextPath(parts))->read_tokens(parts, vocabulary);
  promise(shards.train.size() == 2 * prepared.train.size(), "tokens of shards are lost");
  promise(shards.fingerprint.bytes == 2 * bytes.size(), "bytes of shards are lost");
  write_token_file(copy, prepared.train, vocabulary);
  promise(read_prepared(copy, vocabulary).train.to_vector() == tokens, "written tokens are read back differently");
}

REGISTER_FORMAT(tokens, {.name = "tokens",
                         .readers = {"models/data/token_sequence.cpp", "models/data/token_sequence.h",
                                     "models/data/prepared.cpp", "models/data/token_fingerprint.cpp",
                                     "models/data/texts/llm_c_tokens.cpp", "models/data/texts/token_shards.cpp"},
                         .read = read_tokens,
                         .memory_multiple = 64,
                         .memory_base = 1 << 23,
                         .words = {std::string("\x88\xd8\x34\x01", 4), std::string("\xa1\xd9\x34\x01", 4),
                                   std::string("\1\0\0\0", 4), std::string("\7\0\0\0", 4), std::string(8, '\0'),
                                   std::string("\xff\xff", 2), std::string("\x2c\1", 2)}});

}  // namespace
