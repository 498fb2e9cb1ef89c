// Bits per character: the characters are those of the text, even if the tokens decode to others.
#include "models/data/characters.h"

#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "models/data/byte_pairs.h"
#include "models/data/prepared.h"
#include "models/data/text.h"
#include "models/model.h"
#include "models/tasks/base/task.h"
#include "nn/base/initialization.h"
#include "tests/support/small_run.h"
#include "tests/support/tokenizer_cases.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

const std::string llama = tokenizer_cases::cases + "llama_bos/tokenizer.model";
// 27 tokens of 42 characters: the first has 1, "ﬃ" and line breaks are unknown to this tokenizer.
constexpr const char* words = "First Citizen:\nBefore we  go, \u6f22\u6f22 speak \ufb03.\n";
// 15 tokens of 24 characters; spaces at the end and line breaks are one unknown token.
constexpr const char* more_words = "First \u6f22   Citizen \ufb03   \n\n";

// Returns loss and metrics of a validation by an untrained model.
std::pair<double, std::map<std::string, double>> validated(const Run& run, const Assignments& more) {
  TrainSettings s = run.settings(more);
  const auto task = tasks().at(s.task).make(s.task_settings, s.model_settings, {.batch_size = 2});
  const auto model = make_model(s);
  nn::initialize(*model, 1);
  const Validation found = task->validate(*model, {}).value();
  return {found.loss, {found.metrics.begin(), found.metrics.end()}};
}

}  // namespace

TEST_CASE("characters: SentencePiece's tokens count the characters of the text, also if they are unknown") {
  const Folder folder;
  const auto tokenizer = tokenizer_cases::tokenizer_of(llama);
  write(folder / "text", words), write(folder / "more", more_words);
  const TokenSequence tokens = Text(folder / "text", *tokenizer, 0).train();
  REQUIRE(tokens.size() == 27);
  CHECK(tokens.to_vector() == tokenizer->encode(words));
  CHECK(characters_of_targets(*tokenizer, tokens) == 41);
  CHECK(characters_of_targets(*tokenizer, tokens.slice(13, 27)) == 15);
  CHECK(characters_of_targets(*tokenizer, tokens.to_vector()) == std::nullopt);  // unknown from tokens alone
  const TokenSequence more = Text(folder / "more", *tokenizer, 0).train();
  CHECK(more.size() == 15);
  CHECK(characters_of_targets(*tokenizer, more) == 23);
}

TEST_CASE("characters: the characters of normalized text are those of the original text") {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 40; ++i) text += "o\ufb03ce    number  " + std::to_string(i * 37 % 100) + "  \n";
  const std::string path = folder / "text";
  write(path, text);
  for (const char* const name : {"sentence_piece(vocabulary=40)", "sentence_piece(30, kind=unigram)"}) {
    CAPTURE(name);
    const auto tokenizer = make_tokenizer(name, path);
    const TokenSequence tokens = Text(path, *tokenizer, 0).train();
    REQUIRE(tokens.has_characters());
    std::vector<int32_t> characters(static_cast<size_t>(tokens.size()));
    tokens.read_characters(0, characters);
    int64_t sum = 0;
    for (const int32_t each : characters) sum += each;
    CHECK(sum == 836);  // 40 lines of 19 characters and a number, which has one digit four times
    CHECK(characters_of_targets(*tokenizer, tokens) == 836 - characters[0]);
  }
}

TEST_CASE("characters: a token that strips spaces counts them, and a token id has no characters") {
  const Folder folder;
  write(folder / "text", "a  <m>b");
  const auto pairs = make_byte_pairs(
      {.tokens = {"a", "b", " ", "<m>"}, .merges = {}, .added = {3}, .strips_left = {3}, .ordinary = {3}}, "test");
  const TokenSequence tokens = Text(folder / "text", *pairs, 0).train();
  REQUIRE(tokens.to_vector() == std::vector<int32_t>{0, 3, 1});
  CHECK(characters_of_targets(*pairs, tokens) == 6);
  CHECK(characters_of_targets(*pairs, tokens.to_vector()) == std::nullopt);
  CHECK(characters_of_targets(*pairs, std::vector<int32_t>{0, 1, 2}) == 2);
  const auto numbers = restore_tokenizer(R"({"name": "numbers", "size": 50})");
  CHECK(characters_of_targets(*numbers, std::vector<int32_t>{10, 20, 30}) == std::nullopt);
}

TEST_CASE("characters: marks count 0, and an end token that is written in the text counts its characters") {
  const Folder folder;
  const std::vector<std::string> tokens = {"a", "b", " ", "<m>"};
  const auto with_end = [&](int32_t end) {
    return with_overrides(make_byte_pairs({.tokens = tokens, .merges = {}, .added = {0, 3}}, "test"), {.end = end});
  };
  write(folder / "texts/1", "b a<m>"), write(folder / "texts/2", "ab");
  const TokenSequence of_a = Text(folder / "texts", *with_end(0), 0).train();
  REQUIRE(of_a.to_vector() == std::vector<int32_t>{1, 2, 0, 3, 0, 0, 1, 0});
  CHECK(characters_of_targets(*with_end(0), of_a) == 4);  // " a" and "ab"
  CHECK(characters_of_targets(*with_end(0), of_a.to_vector()) == std::nullopt);
  CHECK(characters_of_targets(*with_end(3), of_a.to_vector()) == 6);
  CHECK(restore_tokenizer(with_end(0)->save())->is_mark(3));
  const auto ordinary = make_byte_pairs({.tokens = tokens, .merges = {}, .added = {3}, .ordinary = {3}}, "test");
  CHECK(!restore_tokenizer(ordinary->save())->is_mark(3));
  CHECK(characters_of_targets(*ordinary, std::vector<int32_t>{1, 3, 0}) == 4);  // "<m>a"
  CHECK(is_same_tokenizer(*ordinary, *make_byte_pairs({.tokens = tokens, .merges = {}, .added = {3}}, "test")));
}

TEST_CASE("characters: unknown characters count if files name <unk> as the token around texts") {
  const Folder folder;
  write(folder / "text", words);
  const auto counted_with = [&](const char* config) {
    const auto tokenizer =
        tokenizer_cases::tokenizer_of(tokenizer_cases::with_file(folder, "llama_bos", "tokenizer_config.json", config));
    CHECK((tokenizer->begin() == 0 || tokenizer->end_of_text() == 0));  // <unk>'s id in transformers 5.23
    return characters_of_targets(*tokenizer, Text(folder / "text", *tokenizer, 0).train());
  };
  CHECK(counted_with(R"({"eos_token": "<unk>"})") == 41);
  CHECK(counted_with(R"({"bos_token": "<unk>", "add_bos_token": true})") == 42);  // its first target is "F"
}

TEST_CASE("characters: bits per character of a validation and of prepared files; undefined without characters") {
  const Run run;
  const std::string held_out = run.folder / "held_out", out = run.folder / "tokens";
  write(held_out, words);
  const auto [loss, metrics] = validated(run, {{"tokenizer", llama}, {"validation_data", held_out}});
  CHECK(metrics.at("bits_per_character") == doctest::Approx(loss * 26 / (41 * std::log(2.0))).epsilon(1e-12));

  prepare({.input = run.text, .validation_input = held_out, .out = out, .tokenizer = llama});
  const auto [of_tokens, same] = validated(run, {{"data", out}});
  CHECK(of_tokens == loss);
  CHECK(same.at("bits_per_character") == metrics.at("bits_per_character"));
  CHECK(!validated(run, {{"data", out}, {"validation_tokens", "20"}}).second.contains("bits_per_character"));

  write(held_out, "\u00e9");  // two bytes: the target continues a character
  const auto none = validated(run, {{"tokenizer", "byte"}, {"validation_data", held_out}}).second;
  CHECK(!none.contains("bits_per_character"));
}
