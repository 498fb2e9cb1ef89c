// Tokens decoded one by one against all tokens decoded at once.
#include "models/data/streaming_decoder.h"

#include <doctest/doctest.h>

#include <random>

#include "models/data/tokenizer.h"
#include "models/formats/unicode.h"
#include "tests/support/folder.h"
#include "tests/support/small_text.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::Folder;

namespace {

const std::string tests = ORRERY_SOURCE_DIR "/tests/models";

std::string one_by_one(const Tokenizer& tokenizer, const std::vector<int32_t>& first,
                       const std::vector<int32_t>& tokens) {
  StreamingDecoder running(tokenizer, first);
  std::string all = tokenizer.decode(first);
  for (const int32_t token : tokens) all += running.add(token);
  return all + running.rest();
}
std::string at_once(const Tokenizer& tokenizer, std::vector<int32_t> tokens, const std::vector<int32_t>& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokenizer.decode(tokens);
}

}  // namespace

TEST_CASE("streaming decoder: the chunks add up to the decoding of all tokens, for every tokenizer") {
  const Folder folder;
  const std::string text = orrery::testing::write_small_text(folder);
  for (const std::string& name :
       {std::string("byte"), std::string("character"), tests + "/byte_pair/gpt2", tests + "/sentence_piece/small.model",
        std::string("sentence_piece(vocabulary=310, byte_fallback=yes)"), std::string("byte_pair(vocabulary=300)")}) {
    INFO(name);
    const auto tokenizer = make_tokenizer(name, text);
    std::mt19937 random(1);
    // Small token ids are more likely: control tokens, unknown tokens and bytes.
    const auto token = [&] {
      const auto size = static_cast<uint32_t>(tokenizer->size());
      return static_cast<int32_t>(random() % (random() % 2 == 0 ? std::min(size, 262u) : size));
    };
    for (int repeat = 0; repeat < 300; ++repeat) {
      std::vector<int32_t> tokens(random() % 20);
      for (int32_t& one : tokens) one = token();
      const std::vector<int32_t> first = repeat % 3 == 0 ? std::vector<int32_t>() : beginning_of_text(*tokenizer);
      CHECK(one_by_one(*tokenizer, first, tokens) == at_once(*tokenizer, first, tokens));
    }
  }
}

TEST_CASE("streaming decoder: a character of several tokens is returned whole, also if no token contains it") {
  const Folder folder;
  const std::string text = orrery::testing::write_small_text(folder);
  const std::string line = "the \u00e9 of \u4e2d\u6587 and \U0001F600 over";
  for (const char* const name : {"byte", "sentence_piece(vocabulary=310, byte_fallback=yes)"}) {
    const auto tokenizer = make_tokenizer(name, text);
    StreamingDecoder running(*tokenizer);
    std::string all;
    for (const int32_t token : tokenizer->encode(line)) {
      const std::string added = running.add(token);
      for (size_t at = 0; at < added.size(); at += character_at(added, at).bytes) {
      }
      all += added;
    }
    CHECK(all == line);
    CHECK(running.rest().empty());
  }
}

TEST_CASE("streaming decoder: a text begins with the begin token, a line break, or the first token") {
  const Folder folder;
  const std::string text = orrery::testing::write_small_text(folder);
  CHECK(beginning_of_text(*make_tokenizer("sentence_piece(vocabulary=60)", text)) == std::vector<int32_t>{1});
  CHECK(beginning_of_text(*make_tokenizer("byte", text)) == std::vector<int32_t>{'\n'});
  CHECK(beginning_of_text(*restore_tokenizer(R"({"name": "numbers", "size": 5})")) == std::vector<int32_t>{0});
  CHECK(beginning_of_text(*restore_tokenizer(R"({"name": "character", "characters": "ab"})")) ==
        std::vector<int32_t>{0});
}
