#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "models/data/text.h"
#include "models/data/tokenizer.h"
#include "tests/support/errors.h"

namespace orrery::models {
namespace {

using testing::error_of;

namespace fs = std::filesystem;
using Tokens = std::vector<int32_t>;

class File {
 public:
  explicit File(const std::string& content)
      : path_((fs::temp_directory_path() / ("orrery_text_" + std::to_string(::getpid()) + ".txt")).string()) {
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~File() { fs::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::unique_ptr<Tokenizer> characters_of(std::string_view text) { return tokenizers().at("character").make(text); }
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

TEST_CASE("characters are numbered by code point") {
  const std::string text = "zebra \xC3\xA9t\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80\n";  // é, euro sign, a face
  const auto tokenizer = characters_of(text);
  CHECK(tokenizer->name() == "character");
  CHECK(tokenizer->size() == 11);
  CHECK(tokenizer->decode(count_to(11)) == "\n abertz\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
  CHECK(tokenizer->encode("\xE2\x82\xAC z") == Tokens{9, 1, 7});
  CHECK(tokenizer->decode(tokenizer->encode(text)) == text);
  CHECK(tokenizer->encode("").empty());
  CHECK(characters_of(std::string("a\0b", 3))->encode(std::string("\0", 1)) == Tokens{0});
}

TEST_CASE("bytes are their own numbers") {
  const auto tokenizer = tokenizers().at("byte").make("");
  std::string all(256, '\0');
  std::iota(all.begin(), all.end(), '\0');
  CHECK(tokenizer->size() == 256);
  CHECK(tokenizer->encode(all) == count_to(256));
  CHECK(tokenizer->decode(count_to(256)) == all);
}

TEST_CASE("tokenizers survive saving") {
  for (const auto& [name, entry] : tokenizers()) {
    if (!entry.make) continue;  // from files, or learned: byte_pair_test, sentence_piece_test
    const std::string text = "quotes \" and \\ and \xC3\xA9\n\t";
    const auto tokenizer = entry.make(text);
    const std::string saved = tokenizer->save();
    CHECK(nlohmann::json::parse(saved).at("name") == name);
    const auto restored = restore_tokenizer(saved);
    CHECK(restored->name() == name);
    CHECK(restored->size() == tokenizer->size());
    CHECK(restored->encode(text) == tokenizer->encode(text));
    CHECK(restored->save() == saved);
  }
  CHECK(error_of([] { restore_tokenizer("{\"name\": \"words\"}"); }) ==
        "tokenizer: no 'words'; there are byte, byte_pair, character, llama2c, numbers, sentence_piece");
  CHECK(error_of([] { restore_tokenizer("{"); }).starts_with("tokenizer: cannot be restored: "));
  CHECK(
      error_of([] { restore_tokenizer("{\"name\": \"character\"}"); }).starts_with("tokenizer: cannot be restored: "));
  CHECK(error_of([] { restore_tokenizer("{\"name\": 3}"); }) ==
        "tokenizer: cannot be restored: 'name' must be text in quotes");
}

TEST_CASE("what a vocabulary lacks is named") {
  const auto tokenizer = characters_of("abc");
  const auto error = [&](const char* text) { return error_of([&] { tokenizer->encode(text); }); };
  const std::string hint = "; leave it out, or train on a text that has it";
  CHECK(error("ab!") == "tokenizer: the vocabulary has no '!' (U+0021), the character at byte 2" + hint);
  CHECK(error("\xC3\xA9") == "tokenizer: the vocabulary has no '\xC3\xA9' (U+00E9), the character at byte 0" + hint);
  CHECK(error("c\xF0\x9F\x98\x80") ==
        "tokenizer: the vocabulary has no '\xF0\x9F\x98\x80' (U+1F600), the character at byte 1" + hint);
  CHECK(error("a\n") == "tokenizer: the vocabulary has no U+000A, the character at byte 1" + hint);
  CHECK(error_of([&] { tokenizer->decode(Tokens{0, 3}); }) == "tokenizer: 3 is no token; there are 0 to 2");
  CHECK(error_of([&] { tokenizer->decode(Tokens{-1}); }) == "tokenizer: -1 is no token; there are 0 to 2");
  CHECK(error_of([&] { tokenizers().at("byte").make("")->decode(Tokens{256}); }) ==
        "tokenizer: 256 is no token; there are 0 to 255");
  CHECK(error_of([&] { tokenizers().at("charater"); }) ==
        "tokenizer: no 'charater'; did you mean 'character'? there are byte, byte_pair, character, llama2c, numbers, "
        "sentence_piece");
}

TEST_CASE("what is not UTF-8 is refused with its place") {
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
    const std::string expected = "tokenizer: the text is not UTF-8 at byte 2; convert it, or use tokenizer=byte";
    CHECK(error_of([&] { characters_of(text); }) == expected);
    CHECK(error_of([&] { characters_of("ab")->encode(text); }) == expected);
  }
  CHECK(characters_of("\xF4\x8F\xBF\xBF\xED\x9F\xBF\xEE\x80\x80\xC2\x80\xE0\xA0\x80\xF0\x90\x80\x80")->size() == 6);
}

TEST_CASE("a text is split into training and held-out tokens") {
  const File file("0123456789abcdefghij");
  const auto tokenizer = make_tokenizer("character", file.path());
  const Text text(file.path(), *tokenizer);
  CHECK(text.train().size() == 18);
  CHECK(tokenizer->decode(text.validation().to_vector()) == "ij");
  CHECK(Text(file.path(), *tokenizer, 0.5).train().size() == 10);
  CHECK(Text(file.path(), *tokenizer, 0).validation().size() == 0);
  CHECK(error_of([&] { Text(file.path(), *tokenizer, 1); }) ==
        "text: validation_fraction 1 must be at least 0 and below 1");
  CHECK(error_of([&] { Text(file.path(), *tokenizer, -0.1); }) ==
        "text: validation_fraction -0.1 must be at least 0 and below 1");
  text.check_context(17);
  CHECK(error_of([&] { text.check_context(18); }) == "text: " + file.path() +
                                                         " has 18 tokens for training, a context of 18 needs "
                                                         "at least 19; take a longer text or a shorter context");
  CHECK(error_of([&] { text.check_context(0); }) == "text: context 0 must be at least 1");
  CHECK(error_of([&] { Text(file.path(), *tokenizer, 0.05).check_context(4); }) ==
        "text: " + file.path() +
            " has 1 token for validation, where 2 are the least; take a longer text or another validation_fraction");
}

TEST_CASE("texts that cannot be used") {
  const auto tokenizer = characters_of("ab");
  CHECK(error_of([&] { Text("/nowhere/text", *tokenizer); }) ==
        "read: cannot read /nowhere/text: No such file or directory");
  CHECK(error_of([&] { make_tokenizer("character", "/nowhere/text"); }) ==
        "read: cannot read /nowhere/text: No such file or directory");
  const File empty("");
  CHECK(error_of([&] { Text(empty.path(), *tokenizer); }) == "text: " + empty.path() + " is empty");
  const File other("abc");
  CHECK(error_of([&] { Text(other.path(), *tokenizer); }) ==
        "text: " + other.path() +
            ": tokenizer: the vocabulary has no 'c' (U+0063), the character at byte 2; leave it out, "
            "or train on a text that has it");
  const File latin("caf\xE9");
  CHECK(error_of([&] { make_tokenizer("character", latin.path()); }) ==
        "text: " + latin.path() + ": tokenizer: the text is not UTF-8 at byte 3; convert it, or use tokenizer=byte");
  CHECK(make_tokenizer("byte", latin.path())->size() == 256);
}

TEST_CASE("Tiny Shakespeare") {
  const std::string path = ORRERY_SOURCE_DIR "/examples/data/tinyshakespeare.txt";
  const auto tokenizer = make_tokenizer("character", path);
  CHECK(tokenizer->decode(count_to(65)) == "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");
  const Text text(path, *tokenizer);
  CHECK(text.train().size() == 1003854);  // nanoGPT's own split
  CHECK(text.validation().size() == 111540);
  CHECK(tokenizer->decode(text.train().part(0, 13).to_vector()) == "First Citizen");
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
  CHECK(starts.size() == 15);  // every place occurs, the first and the last too
  CHECK(*starts.begin() == 0);
  CHECK(*starts.rbegin() == 14);

  const TextBatches again(tokens, 64, 5, 1337), other(tokens, 64, 5, 1338);
  CHECK(numbers(again.at(7, 2).inputs) == numbers(batches.at(7, 2).inputs));
  CHECK(numbers(other.at(7, 2).inputs) != numbers(batches.at(7, 2).inputs));
  CHECK(numbers(batches.at(7, 1).inputs) != numbers(batches.at(7, 2).inputs));
  CHECK(numbers(batches.at(6, 2).inputs) != numbers(batches.at(7, 2).inputs));

  CHECK(numbers(TextBatches(count_to(6), 1, 5, 1).at(0).targets) == Tokens{1, 2, 3, 4, 5});
  CHECK(error_of([] { TextBatches(count_to(5), 1, 5, 1); }) ==
        "text: 5 tokens, a context of 5 needs at least 6; take a longer text or a shorter context");
  CHECK(error_of([&] { TextBatches(tokens, 0, 5, 1); }) == "text: batch 0 and context 5 must be at least 1");
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
  CHECK(error_of([] { windows_of(count_to(1), 4, 3); }) ==
        "text: validation needs at least 2 tokens, not 1; take a longer text or another validation_fraction");
  CHECK(error_of([] { windows_of(count_to(9), 0, 3); }) == "text: batch 3 and context 0 must be at least 1");
}

}  // namespace
}  // namespace orrery::models
