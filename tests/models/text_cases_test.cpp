// Texts that once failed; tests/cases/README.md names the programs for the values.
#include <doctest/doctest.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/system/files.h"
#include "models/data/byte_pairs.h"
#include "models/data/prepared.h"
#include "models/data/sentence_pairs.h"
#include "models/data/sentence_piece.h"
#include "models/data/sentence_piece_model.h"
#include "models/data/text.h"
#include "models/data/tokenizer.h"
#include "models/formats/base64.h"
#include "models/formats/unicode.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"
#include "tests/support/tokenizer_cases.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::Folder;
using namespace orrery::testing::tokenizer_cases;

namespace {

// Returns the library's own tokens of the whole text.
Tokens encoded_at_once(const Tokenizer& tokenizer, const std::string& text) {
  const std::string model = nlohmann::json::parse(tokenizer.save())["model"];
  sentencepiece::SentencePieceProcessor processor;
  REQUIRE(processor.LoadFromSerializedProto(bytes_of_base64(model, "a model")).ok());
  Tokens tokens;
  REQUIRE(processor.Encode(text, &tokens).ok());
  return tokens;
}

// Returns a word of pseudo-random letters A, C, G and T.
std::string word_of(size_t letters) {
  std::string word;
  for (uint32_t drawn = 1; word.size() < letters;) {
    drawn = drawn * 1664525 + 1013904223;
    word += "ACGT"[drawn >> 30];
  }
  return word;
}

// Returns a SentencePiece model of a few letters and pairs, with the space before or after words,
// and three user-defined symbols. `more`: fields that override the model's own.
std::string model_with_symbols(bool space_ends, const std::string& more) {
  using Kind = SentencePieceEntry::Kind;
  std::vector<SentencePieceEntry> pieces = {
      {"<unk>", 0, Kind::unknown}, {"<s>", 0, Kind::control}, {"</s>", 0, Kind::control}};
  const std::string space = "\xe2\x96\x81";
  for (const std::string& symbol : {std::string("<sep>"), "d" + space + "c", std::string("c d")})
    pieces.push_back({symbol, 0, Kind::user_defined});
  for (const std::string& symbol : {std::string("ab"), space_ends ? "b" + space : space + "a",
                                    space_ends ? "ab" + space : space + "ab", std::string("cd"), std::string("cdc"),
                                    space, std::string("a"), std::string("b"), std::string("c"), std::string("d")})
    pieces.push_back({symbol, -static_cast<float>(pieces.size()), Kind::normal});
  return sentence_piece_model(pieces) + (space_ends ? std::string("\x12\x03\xc0\x01\x01", 5) : "") + more;
}

}  // namespace

TEST_CASE("invalid UTF-8: it is an error with its offset for every tokenizer of characters") {
  const std::string latin = cases + "latin1/latin1.txt", text = read_file(latin);
  for (const char* const tokenizer : {"character", "sentence_piece(vocabulary=60)"})
    expect_error([&] { make_tokenizer(tokenizer, latin); })
        .names(latin)
        .names("UTF-8")
        .value(5)
        .offers("tokenizer=byte");
  const auto learned = make_tokenizer(ORRERY_SOURCE_DIR "/tests/models/sentence_piece/small.model", "");
  expect_error([&] { learned->encode(text); }).names("UTF-8").value(5).offers("tokenizer=byte");
  std::vector<int32_t> tokens;
  expect_error([&] { learned->encode_beginning(text, tokens); }).names("UTF-8").value(5).offers("tokenizer=byte");
  expect_error([&] { Text(latin, *learned); }).names(latin).names("UTF-8").value(5);
  for (const auto* const tokenizer : {"byte", "byte_pair(vocabulary=270)"}) {
    const auto any_bytes = make_tokenizer(tokenizer, latin);
    CHECK(any_bytes->decode(any_bytes->encode(text)) == text);
  }
}

TEST_CASE("invalid UTF-8: files of pairs and names of classes have equal error messages") {
  const Folder folder;
  write_file_atomically(folder / "good", "a\nb\n"), write_file_atomically(folder / "bad", "a\n\xe4\n");
  expect_error([&] { read_pairs({.source = folder / "good", .target = folder / "bad"}); })
      .names(folder / "bad")
      .names("UTF-8")
      .value(2)
      .offers("convert it");
  expect_error([&] { check_utf8("B\xe4r", "images: a class", "rename it"); }).names("UTF-8").value(1).offers("rename");
  check_utf8("B\xc3\xa4r", "images: a class");
}

TEST_CASE("sentence piece: training accepts words of any length") {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "The grey cat sits by the old gate and looks at the long road.\n";
  for (const size_t letters : {32'000, 32'767, 32'768, 33'000, 65'536, 70'000}) {
    CAPTURE(letters);
    for (const char* const kind : {"bpe", "unigram"})
      CHECK(train_sentence_piece(text + word_of(letters), {.vocabulary = 80, .kind = kind})->size() == 80);
  }
  // One character of three bytes, which normalization turns into 18 characters.
  std::string blessings;
  for (int i = 0; i < 2'000; ++i) blessings += "\xef\xb7\xba";
  CHECK(train_sentence_piece(text + blessings, {.vocabulary = 80})->size() == 80);
}

TEST_CASE("sentence piece: a text that is split has the tokens of the whole text, for any letters") {
  std::string words, one_word, mixed;
  for (uint32_t i = 0, drawn = 1; i < 60'000; ++i) {
    drawn = drawn * 1664525 + 1013904223;
    const std::string letter =
        i % 7 == 3 ? std::string(1, static_cast<char>('a' + (drawn >> 20) % 26)) : utf8(0x4e00 + (drawn >> 16) % 300);
    one_word += letter, words += letter, mixed += letter;
    if (drawn >> 28 == 0) words += "\n";
    if (drawn >> 27 == 5) mixed += "  ";
    if (drawn >> 25 == 9) mixed += "e\xcc\x81 \xe3\x80\x80\xc2\xa0";  // a combining accent and Unicode spaces
  }
  for (const char* const kind : {"bpe", "unigram"}) {
    const auto tokenizer = train_sentence_piece(words.substr(0, 90'000), {.vocabulary = 900, .kind = kind});
    for (const std::string* const text : {&words, &one_word, &mixed}) {
      const Tokens tokens = tokenizer->encode(*text);
      CHECK(divided(*tokenizer, *text, 5'000) == tokens);
      CHECK(divided(*tokenizer, *text, 70'001) == tokens);
      // In long texts, rounding of the library's score sums exceeds the differences of pieces.
      const bool sums = std::string(kind) == "unigram";
      const std::string some = sums ? text->substr(0, end_of_characters(text->substr(0, 6'000))) : *text;
      CHECK(tokenizer->encode(some) == encoded_at_once(*tokenizer, some));
    }
  }
}

TEST_CASE("sentence piece: a text can be split with user-defined symbols and spaces after words") {
  std::string text;
  for (uint32_t drawn = 1; text.size() < 400'000;) {
    drawn = drawn * 1664525 + 1013904223;
    const char* const some[] = {"ab", "c", "d", "<sep>", "<se", "c d", "b", "\xc3\xa4", " a", "  b", "\n", "cd a"};
    text += some[(drawn >> 16) % 12];
    if (drawn >> 30 == 0) text += " ";
  }
  text += " ab";
  const std::string no_space("\x1a\x02\x18\x00", 4), one_space("\x1a\x02\x20\x01", 4);
  const Folder folder;
  for (const bool space_ends : {false, true})
    for (const std::string& more : {std::string(), no_space, one_space, no_space + one_space}) {
      CAPTURE(space_ends);
      CAPTURE(more.size());
      write_file_atomically(folder / "m.model", model_with_symbols(space_ends, more));
      const auto tokenizer = tokenizer_of(folder / "m.model");
      const Tokens tokens = encoded_at_once(*tokenizer, text);
      CHECK(std::find(tokens.begin(), tokens.end(), 3) != tokens.end());
      CHECK(std::find(tokens.begin(), tokens.end(), 4) != tokens.end());
      CHECK(tokenizer->encode(text) == tokens);
      CHECK(divided(*tokenizer, text, 5'000) == tokens);
      Tokens some;
      const bool keeps_spaces = more != no_space + one_space;  // otherwise a chunk loses the spaces at its end
      CHECK((tokenizer->encode_beginning(text, some) > text.size() / 2) == keeps_spaces);
    }
  for (const char* const kind : {"bpe", "unigram"}) {
    const auto learned = train_sentence_piece(text.substr(0, 100'000), {.vocabulary = 40, .kind = kind});
    const std::string model = nlohmann::json::parse(learned->save())["model"],
                      symbol("\x0a\x0e\x0a\x05<sep>\x15\x00\x00\x00\x00\x18\x04", 16);
    write_file_atomically(folder / "m.model", bytes_of_base64(model, "a model") + symbol);
    const auto tokenizer = tokenizer_of(folder / "m.model");
    const Tokens tokens = tokenizer->encode(text);
    CHECK(std::find(tokens.begin(), tokens.end(), 40) != tokens.end());
    CHECK(divided(*tokenizer, text, 5'000) == tokens);
    const std::string some = text.substr(0, text.find("\n", 5'000));
    CHECK(tokenizer->encode(some) == encoded_at_once(*tokenizer, some));
  }
}

TEST_CASE("sentence piece: a text without training data is an error, for both kinds") {
  std::string odd;  // words of 3,000 letters, without spaces between them
  for (uint32_t i = 0, drawn = 3; i < 60'000; ++i) {
    if (i > 0 && i % 3'000 == 0) odd += "??";
    drawn = drawn * 1664525 + 1013904223;
    odd += "abcde"[(drawn >> 16) % 5];
  }
  const Folder folder;
  for (const char* const kind : {"bpe", "unigram"}) {
    for (const char* const nothing :
         {"   \n \n", "\xe2\x80\x8b\n", "\xef\xbb\xbf", "\xe2\x96\x81\n", "\t\n", "\x01", "a\xe2\x96\x85\n  "}) {
      CAPTURE(nothing);
      expect_error([&] { train_sentence_piece(nothing, {.vocabulary = 12, .kind = kind}); })
          .names("tokenizer")
          .offers("another text");
    }
    CHECK(train_sentence_piece("a\xe2\x96\x85\nab ab\n", {.vocabulary = 7, .kind = kind})->size() == 7);
    CHECK(train_sentence_piece(odd, {.vocabulary = 20, .kind = kind, .coverage = 1})->size() == 20);
  }
  write_file_atomically(folder / "text", "ab ab\n");
  expect_error([&] { make_tokenizer("sentence_piece(coverage=0.95)", folder / "text"); })
      .names("coverage")
      .value("0.95")
      .offers("0.98");
}

TEST_CASE("byte pairs: texts of odd characters have the tokens of Hugging Face's tokenizers 0.23.3") {
  const Folder folder;
  struct Case {
    std::string tokenizer, ids;
  };
  for (const Case& each : {Case{"gpt2.json", "gpt2.ids"}, {"llama3.json", "llama3.ids"}}) {
    CAPTURE(each.tokenizer);
    const std::string out = folder / each.ids;
    prepare({.input = cases + "odd_texts/odd.txt",
             .out = out,
             .tokenizer = cases + "odd_texts/" + each.tokenizer,
             .validation_fraction = 0.2});
    std::istringstream numbers(read_file(cases + "odd_texts/" + each.ids));
    std::string wanted;
    for (int number; numbers >> number;) wanted += {static_cast<char>(number), static_cast<char>(number >> 8)};
    CHECK(read_file(out + "/train.bin") + read_file(out + "/val.bin") == wanted);
  }
}

TEST_CASE("byte pairs: training time grows linearly with the length of a word") {
  const auto seconds_of = [](size_t letters) {  // processor time
    const std::string word = word_of(letters);
    const std::clock_t begin = std::clock();
    train_byte_pairs(word, 600, {});
    return static_cast<double>(std::clock() - begin);
  };
  CHECK(seconds_of(1'000'000) < 10 * seconds_of(250'000));  // 16 times if each merge moved all that follows it
}

TEST_CASE("byte pairs: training on a long word reports progress") {
  const std::string word = word_of(1'000'000);
  std::vector<double> fractions;
  const auto learned = train_byte_pairs(word, 600, [&](double fraction) { fractions.push_back(fraction); });
  CHECK(learned->size() == 600);
  CHECK(std::is_sorted(fractions.begin(), fractions.end()));
  CHECK(fractions.back() == 1);
  CHECK(learned->decode(learned->encode(word)) == word);
}
