#include <doctest/doctest.h>

#include <fstream>
#include <numeric>
#include <set>

#include "models/data/text.h"
#include "models/data/tokenizer.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"
#include "tests/support/text.h"

namespace orrery::models {
namespace {

using testing::contains;
using testing::expect_error;

using Tokens = std::vector<int32_t>;

class File {
 public:
  explicit File(const std::string& content) { std::ofstream(path_, std::ios::binary) << content; }
  const std::string& path() const { return path_; }

 private:
  testing::Folder folder_;
  std::string path_ = folder_ / "text.txt";
};

std::unique_ptr<Tokenizer> characters_of(std::string_view text) { return tokenizers().at("character").make(text); }
constexpr const char* all_tokenizers = "byte, byte_pair, character, llama2c, sentence_piece, token_ids";
Tokens count_to(int32_t n) {
  Tokens tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}
std::vector<Batch> windows_of(const Tokens& tokens, int64_t context, int64_t batch) {
  std::vector<Batch> all;
  each_window(tokens, context, batch, [&](const Batch& window) { return all.push_back(window), true; });
  return all;
}
Tokens numbers(const Tensor& x) { return {x.data<int32_t>(), x.data<int32_t>() + x.numel()}; }

TEST_CASE("character tokens are numbered by code point") {
  const std::string text = "zebra \xC3\xA9t\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80\n";  // é, euro sign, an emoji
  const auto tokenizer = characters_of(text);
  CHECK(tokenizer->name() == "character");
  CHECK(tokenizer->size() == 11);
  CHECK(tokenizer->decode(count_to(11)) == "\n abertz\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
  CHECK(tokenizer->encode("\xE2\x82\xAC z") == Tokens{9, 1, 7});
  CHECK(tokenizer->decode(tokenizer->encode(text)) == text);
  CHECK(tokenizer->encode("").empty());
  CHECK(characters_of(std::string("a\0b", 3))->encode(std::string("\0", 1)) == Tokens{0});
}

TEST_CASE("byte tokens are numbered by the byte's value") {
  const auto tokenizer = tokenizers().at("byte").make("");
  std::string all(256, '\0');
  std::iota(all.begin(), all.end(), '\0');
  CHECK(tokenizer->size() == 256);
  CHECK(tokenizer->encode(all) == count_to(256));
  CHECK(tokenizer->decode(count_to(256)) == all);
}

TEST_CASE("a saved tokenizer is restored as an equal one") {
  for (const auto& [name, entry] : tokenizers()) {
    if (!entry.make) continue;  // from files or trained: byte_pair_test, sentence_piece_test
    const std::string text = "quotes \" and \\ and \xC3\xA9\n\t";
    const auto tokenizer = entry.make(text);
    const std::string saved = tokenizer->save();
    CHECK(contains(saved, "\"name\":\"" + name + "\""));
    const auto restored = restore_tokenizer(saved);
    CHECK(restored->name() == name);
    CHECK(restored->size() == tokenizer->size());
    CHECK(restored->encode(text) == tokenizer->encode(text));
    CHECK(restored->save() == saved);
  }
  const auto failure = [](const char* saved) { return expect_error([&] { restore_tokenizer(saved); }); };
  failure("{\"name\": \"words\"}").names("tokenizer").value("words").offers(all_tokenizers);
  for (const char* saved : {"{", "{\"name\": \"character\"}"}) failure(saved).names("tokenizer").names("restored");
  failure("{\"name\": 3}").names("tokenizer").names("restored").names("'name'").offers("text in quotes");
}

TEST_CASE("the error for a character outside the vocabulary names it") {
  const auto tokenizer = characters_of("abc");
  const auto encoding = [&](const char* text) { return expect_error([&] { tokenizer->encode(text); }); };
  encoding("ab!").names("tokenizer").value("'!' (U+0021)").value("byte 2").offers("train");
  encoding("\xC3\xA9").value("'\xC3\xA9' (U+00E9)").value("byte 0").offers("train");
  encoding("c\xF0\x9F\x98\x80").value("'\xF0\x9F\x98\x80' (U+1F600)").value("byte 1").offers("train");
  encoding("a\n").value("U+000A").value("byte 1").offers("train");
  const auto decoding = [](const Tokenizer& by, int32_t token) {
    return expect_error([&] { by.decode(Tokens{0, token}); });
  };
  for (const int32_t token : {3, -1}) decoding(*tokenizer, token).names("tokenizer").value(token).offers("0 to 2");
  decoding(*tokenizers().at("byte").make(""), 256).names("tokenizer").value(256).offers("0 to 255");
  const auto ids = restore_tokenizer(R"({"name": "numbers", "size": 9})");
  expect_error([&] { ids->encode("1 x"); }).names("token_ids").value("'x'").offers("numbers with spaces");
  for (const char* const size : {"0", "1048577"})
    expect_error([&] { restore_tokenizer(std::string(R"({"name": "numbers", "size": )") + size + "}"); })
        .names("token_ids")
        .value(size)
        .offers("1 to 1048576");
  const char* const of_number = R"({"name": "byte_pair", "pattern": "x", "whole_pieces": true, "tokens": [7]})";
  expect_error([&] { restore_tokenizer(of_number); })
      .names("tokenizer")
      .offers("text in quotes");
  expect_error([] { tokenizers().at("charater"); })
      .names("tokenizer")
      .value("charater")
      .offers("character")
      .offers(all_tokenizers);
}

TEST_CASE("text: the error for invalid UTF-8 has its offset") {
  const char* const broken[] = {"ab\xFFzzz",
                                "ab\x80",
                                "ab\xC3",
                                "ab\xC3z",
                                "ab\xC0\x80",
                                "ab\xE0\x80\x80",
                                "ab\xED\xA0\x80",
                                "ab\xF4\x90\x80\x80",
                                "ab\xF0\x9F\x98",
                                "ab\xF8\x88\x80\x80\x80",
                                "ab\xF0\x80\x80\x80"};
  for (const char* const text : broken) {
    const std::string learned =
        expect_error([&] { characters_of(text); }).names("UTF-8").value("byte 2").offers("tokenizer=byte").message();
    CHECK(expect_error([&] { characters_of("ab")->encode(text); }).message() == learned);
  }
  CHECK(characters_of("\xF4\x8F\xBF\xBF\xED\x9F\xBF\xEE\x80\x80\xC2\x80\xE0\xA0\x80\xF0\x90\x80\x80")->size() == 6);
}

TEST_CASE("a text is split into training and validation tokens") {
  const File file("0123456789abcdefghij");
  const auto tokenizer = make_tokenizer("character", file.path());
  const Text text(file.path(), *tokenizer);
  CHECK(text.train().size() == 18);
  CHECK(tokenizer->decode(text.validation().to_vector()) == "ij");
  CHECK(Text(file.path(), *tokenizer, 0.5).train().size() == 10);
  CHECK(Text(file.path(), *tokenizer, 0).validation().size() == 0);
  for (const double fraction : {1.0, -0.1})
    expect_error([&] { Text(file.path(), *tokenizer, fraction); })
        .names("validation_fraction")
        .value(fraction)
        .offers(0)
        .offers(1);
  text.check_context(17);
  expect_error([&] { text.check_context(18); }).names(file.path()).value(18).names("context").value(18).offers(19);
  expect_error([&] { text.check_context(0); }).names("context").value(0).offers(1);
  expect_error([&] { Text(file.path(), *tokenizer, 0.05).check_context(4); })
      .names(file.path())
      .value("1 token")
      .offers(2)
      .offers("validation_fraction");
}

TEST_CASE("unusable texts have error messages") {
  const auto tokenizer = characters_of("ab");
  expect_error([&] { Text("/nowhere/text", *tokenizer); }).names("read").value("/nowhere/text").value("No such file");
  expect_error([&] { make_tokenizer("character", "/nowhere/text"); })
      .names("read")
      .value("/nowhere/text")
      .value("No such file");
  const File empty("");
  expect_error([&] { Text(empty.path(), *tokenizer); }).names("text").names(empty.path()).value("empty");
  const File other("abc");
  expect_error([&] { Text(other.path(), *tokenizer); })
      .names(other.path())
      .value("'c' (U+0063)")
      .value("byte 2")
      .offers("train");
  const File latin("caf\xE9");
  expect_error([&] { make_tokenizer("character", latin.path()); })
      .names(latin.path())
      .names("UTF-8")
      .value("byte 3")
      .offers("tokenizer=byte");
  CHECK(make_tokenizer("byte", latin.path())->size() == 256);
}

TEST_CASE("Tiny Shakespeare") {
  const std::string path = ORRERY_SOURCE_DIR "/examples/data/tinyshakespeare.txt";
  const auto tokenizer = make_tokenizer("character", path);
  CHECK(tokenizer->decode(count_to(65)) == "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");
  const Text text(path, *tokenizer);
  CHECK(text.train().size() == 1003854);  // nanoGPT's split
  CHECK(text.validation().size() == 111540);
  CHECK(tokenizer->decode(text.train().slice(0, 13).to_vector()) == "First Citizen");
}

TEST_CASE("random crops") {
  const Tokens tokens = count_to(20);
  const TextBatches batches(tokens, 64, 5, 1337);
  std::set<int32_t> starts;
  for (int64_t step = 0; step < 10; ++step) {
    const Batch batch = batches.at(step);
    CHECK(batch.inputs.shape() == Shape{64, 5});
    CHECK(batch.targets.shape() == Shape{64, 5});
    CHECK(batch.inputs.dtype() == Dtype::i32);
    const Tokens x = numbers(batch.inputs), y = numbers(batch.targets);
    for (size_t i = 0; i < x.size(); ++i) {
      CHECK(x[i] == x[i / 5 * 5] + static_cast<int32_t>(i % 5));
      CHECK(y[i] == x[i] + 1);
      if (i % 5 == 0) starts.insert(x[i]);
    }
  }
  CHECK(starts.size() == 15);  // every start occurs, the first and the last included
  CHECK(*starts.begin() == 0);
  CHECK(*starts.rbegin() == 14);

  const TextBatches again(tokens, 64, 5, 1337), other(tokens, 64, 5, 1338);
  CHECK(numbers(again.at(7, 2).inputs) == numbers(batches.at(7, 2).inputs));
  CHECK(numbers(other.at(7, 2).inputs) != numbers(batches.at(7, 2).inputs));
  CHECK(numbers(batches.at(7, 1).inputs) != numbers(batches.at(7, 2).inputs));
  CHECK(numbers(batches.at(6, 2).inputs) != numbers(batches.at(7, 2).inputs));

  CHECK(numbers(TextBatches(count_to(6), 1, 5, 1).at(0).targets) == Tokens{1, 2, 3, 4, 5});
  expect_error([] { TextBatches(count_to(5), 1, 5, 1); }).value(5).names("context").value(5).offers(6);
  expect_error([&] { TextBatches(tokens, 0, 5, 1); }).names("batch_size").value(0).offers(1);
}

TEST_CASE("consecutive windows predict every token but the first exactly once") {
  for (const int32_t n : {2, 3, 5, 6, 16, 17, 18, 21, 40}) {
    const Tokens tokens = count_to(n);
    Tokens inputs, targets;
    const std::vector<Batch> windows = windows_of(tokens, 4, 3);
    for (size_t i = 0; i < windows.size(); ++i) {
      const Batch& batch = windows[i];
      CHECK(batch.inputs.shape() == batch.targets.shape());
      CHECK(batch.inputs.size(0) <= 3);
      const bool left_over = i + 1 == windows.size() && (n - 1) % 4 != 0;
      CHECK(batch.inputs.size(1) == (left_over ? (n - 1) % 4 : 4));
      for (const int32_t t : numbers(batch.inputs)) inputs.push_back(t);
      for (const int32_t t : numbers(batch.targets)) targets.push_back(t);
    }
    CHECK(inputs == Tokens(tokens.begin(), tokens.end() - 1));
    CHECK(targets == Tokens(tokens.begin() + 1, tokens.end()));
  }
  CHECK(windows_of(count_to(25), 4, 3).size() == 2);
  expect_error([] { windows_of(count_to(1), 4, 3); })
      .names("validation")
      .offers(2)
      .value(1)
      .offers("validation_fraction");
  expect_error([] { windows_of(count_to(9), 0, 3); }).names("context").value(0).offers(1);
}

}  // namespace
}  // namespace orrery::models
