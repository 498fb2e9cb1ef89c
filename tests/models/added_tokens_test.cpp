// Tokens around and between texts, and long runs of white space.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "models/exchange/base/tokenizer_json.h"
#include "tests/support/tokenizer_cases.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing::tokenizer_cases;
using orrery::testing::Folder;

TEST_CASE("sentence piece: spaces that are longer than a part are one space, in time that grows with them") {
  const auto tokenizer = tokenizer_of(ORRERY_SOURCE_DIR "/tests/models/sentence_piece/small.model");
  const size_t most = size_t{1} << 24;  // bytes that are encoded at once
  const Tokens two = tokenizer->encode("First Citizen"), one = tokenizer->encode("First");
  const std::string spaces(most + 9, ' ');
  CHECK(tokenizer->encode("First" + spaces + "Citizen") == two);
  CHECK(tokenizer->encode("\xc3\xa4" + spaces + "First") == tokenizer->encode("\xc3\xa4 First"));
  CHECK(tokenizer->encode(spaces + "First" + spaces) == one);
}

TEST_CASE("tokenizers: white space around an added token is a part of it where its files say so") {
  const Folder folder, exported, pairs_exported;
  const std::string words = "First<|im|> Citizen: <|im|>Cit", lines = "First <|im|>   Citizen";
  const auto pieces = [&](const char* flags) {
    const std::string copy =
        with_file(folder, "llama_bos", "tokenizer_config.json",
                  text(R"({"tokenizer_class": "LlamaTokenizer", "added_tokens_decoder": {"200": {"content": "<|im|>")",
                       flags, "}}}"));
    return tokenizer_of(copy);
  };
  struct Case {
    const char* flags;
    Tokens words, lines;
  };
  // By transformers 5.24.
  for (const Case& each : {Case{R"(, "rstrip": true)",
                                {83, 122, 200, 178, 108, 142, 167, 145, 200, 178, 16},
                                {83, 122, 145, 200, 178, 108, 142}},
                           Case{R"(, "lstrip": true, "rstrip": false)",
                                {83, 122, 200, 47, 108, 142, 167, 200, 178, 16},
                                {83, 122, 200, 145, 145, 47, 108, 142}},
                           Case{R"(, "lstrip": true, "rstrip": true)",
                                {83, 122, 200, 178, 108, 142, 167, 200, 178, 16},
                                {83, 122, 200, 178, 108, 142}}}) {
    CAPTURE(each.flags);
    const auto tokenizer = pieces(each.flags);
    CHECK(tokenizer->encode(words) == each.words);
    CHECK(tokenizer->encode(lines) == each.lines);
    CHECK(divided(*tokenizer, lines, 5) == each.lines);
    const Tokens both = {83, 122, 200, 178, 108, 142};
    CHECK((tokenizer->encode("First\n <|im|>  \n Citizen") == both) == (each.lines == both));
    const auto restored = restore_tokenizer(tokenizer->save());
    CHECK(restored->encode(words) == each.words);
    write_tokenizer_files(exported.path, nlohmann::ordered_json::parse(tokenizer->save()));
    CHECK(tokenizer_of(exported.path)->encode(words) == each.words);
  }
  const auto between = pieces(R"(, "single_word": true)");
  CHECK(between->encode("First<|im|>") == Tokens{83, 122, 200});
  CHECK(noted(*between).find("single_word") != std::string::npos);

  // By tokenizers 0.23.3.
  const auto pairs = [&](bool left, bool right) {
    nlohmann::json json = nlohmann::json::parse(read_file(cases + "gpt2_end_of_text/tokenizer.json"));
    json["added_tokens"][0]["lstrip"] = left, json["added_tokens"][0]["rstrip"] = right;
    return tokenizer_of(with_file(folder, "gpt2_end_of_text", "tokenizer.json", json.dump()));
  };
  const std::string gates = "the \xc2\xa0\n<|endoftext|> \t gate <|endoftext|> <|endoftext|>  ";
  for (const auto& [left, right, tokens] : std::vector<std::tuple<bool, bool, Tokens>>{
           {true, false, {84, 258, 0, 221, 198, 300, 299, 69, 0, 0, 221, 221}},
           {false, true, {84, 258, 221, 127, 255, 199, 0, 71, 299, 69, 221, 0, 0}},
           {true, true, {84, 258, 0, 71, 299, 69, 0, 0}}}) {
    const auto tokenizer = pairs(left, right);
    CHECK(tokenizer->encode(gates) == tokens);
    CHECK(divided(*tokenizer, gates, 5) == tokens);
    CHECK(restore_tokenizer(tokenizer->save())->encode(gates) == tokens);
    write_tokenizer_files(pairs_exported.path, nlohmann::ordered_json::parse(tokenizer->save()));
    CHECK(tokenizer_of(pairs_exported.path)->encode(gates) == tokens);
  }
}

TEST_CASE("tokenizers: a token beyond the model's vocabulary begins and ends no text") {
  const auto known = [](int64_t vocabulary) {
    return with_use(tokenizer_of(cases + "llama_bos"), {.begins_texts = true, .vocabulary = vocabulary});
  };
  CHECK(known(3)->end_of_text() == 2);
  const auto without_end = restore_tokenizer(known(2)->save());
  CHECK(without_end->begin() == 1);
  CHECK(!without_end->end().has_value());
  CHECK(!without_end->end_of_text().has_value());
  const auto without_both = known(1);
  CHECK(!without_both->begin().has_value());
  CHECK(!without_both->begins_texts());
  auto ended = with_use(tokenizer_of(cases + "llama_bos"), {.ends = Tokens{2, 7}});
  CHECK(with_use(std::move(ended), {.vocabulary = 5})->ends() == Tokens{2});
}
