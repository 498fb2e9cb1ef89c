// SentencePiece against its Python package, models that are trained here, and errors.
#include "models/data/sentence_piece.h"

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/system/files.h"
#include "models/data/tokenizer.h"
#include "models/formats/base64.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"
#include "tests/support/small_text.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::Folder;

namespace {

const std::string golden = ORRERY_SOURCE_DIR "/tests/models/sentence_piece";

}  // namespace

TEST_CASE("sentence piece: tokens and text equal those of the Python package, also after a checkpoint") {
  const auto tokenizer = make_tokenizer(golden + "/small.model", "");
  CHECK(tokenizer->size() == 400);
  CHECK(tokenizer->begin() == 1);
  CHECK(tokenizer->end() == 2);
  const auto restored = restore_tokenizer(tokenizer->save());
  CHECK(restored->save() == tokenizer->save());
  const nlohmann::json cases = nlohmann::json::parse(read_file(golden + "/cases.json"));
  CHECK(cases.size() == 11);
  for (const nlohmann::json& one : cases) {
    const std::string text = one["text"];
    INFO(text);
    const auto tokens = one["tokens"].get<std::vector<int32_t>>();
    CHECK(tokenizer->encode(text) == tokens);
    CHECK(restored->encode(text) == tokens);
    CHECK(tokenizer->decode(tokens) == one["decoded"].get<std::string>());
  }
  CHECK(make_tokenizer(golden, "")->save() == tokenizer->save());  // the folder's only model
  const Folder folder;
  std::filesystem::copy_file(golden + "/small.model", folder / "small.model");
  REQUIRE(std::system(("gzip --keep '" + (folder / "small.model") + "'").c_str()) == 0);
  CHECK(make_tokenizer(folder / "", "")->save() == tokenizer->save());  // both files are one model
  std::filesystem::remove(folder / "small.model");
  CHECK(make_tokenizer(folder / "", "")->save() == tokenizer->save());
  CHECK(make_tokenizer(folder / "small.model.gz", "")->save() == tokenizer->save());
}

TEST_CASE("sentence piece: training on a text gives an equal tokenizer each time") {
  const Folder folder;
  const std::string text = orrery::testing::write_small_text(folder), setting = "sentence_piece(vocabulary=60)";
  const auto tokenizer = make_tokenizer(setting, text);
  CHECK(tokenizer->size() == 60);
  CHECK(make_tokenizer(setting, text)->save() == tokenizer->save());
  const std::string line = "the quick fox number 17 jumps over the lazy dog.";
  CHECK(tokenizer->decode(tokenizer->encode(line)) == line);
  CHECK(tokenizer->encode(line).size() < line.size());
  CHECK(make_tokenizer("sentence_piece(50, kind=unigram)", text)->size() == 50);
  const auto with_bytes = make_tokenizer("sentence_piece(vocabulary=310, byte_fallback=yes)", text);
  CHECK(with_bytes->decode(with_bytes->encode("\xE4\xB8\xAD")) == "\xE4\xB8\xAD");
}

TEST_CASE("sentence piece: a word has equal pieces regardless of the text before it") {
  const std::string text = read_file(ORRERY_SOURCE_DIR "/examples/data/tinyshakespeare.txt");
  const auto tokenizer = train_sentence_piece(text.substr(0, 200'000), {.vocabulary = 1000, .kind = "unigram"});
  std::vector<int32_t> words;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    const std::vector<int32_t> word = tokenizer->encode(text.substr(begin, end - begin));
    words.insert(words.end(), word.begin(), word.end());
    begin = end + 1;
  }
  CHECK(tokenizer->encode(text) == words);
}

TEST_CASE("sentence piece: any number of consecutive unknown characters is one token, in linear time") {
  const Folder folder;
  const std::string text = orrery::testing::write_small_text(folder);
  const auto run = [&](int64_t count) {
    std::string all = "the";
    for (int64_t i = 0; i < count; ++i) all += "\xe4\xb8\xad\xe6\x96\x87";
    return all + "fox";
  };
  for (const char* const setting : {"sentence_piece(vocabulary=60)", "sentence_piece(50, kind=unigram)"}) {
    CAPTURE(setting);
    const auto tokenizer = make_tokenizer(setting, text);
    const std::vector<int32_t> tokens = tokenizer->encode(run(1));
    for (const int64_t count : {10'000, 10'922, 10'923, 10'924, 30'000}) CHECK(tokenizer->encode(run(count)) == tokens);
    CHECK(tokenizer->encode(run(20'000) + " " + run(20'000)) == tokenizer->encode(run(1) + " " + run(1)));
    const auto start = std::chrono::steady_clock::now();
    CHECK(tokenizer->encode(run(300'000)) == tokens);  // takes minutes without chunks
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
  }
  const auto with_bytes = make_tokenizer("sentence_piece(vocabulary=310, byte_fallback=yes)", text);
  CHECK(with_bytes->encode(run(30'000)).size() == with_bytes->encode(run(1)).size() + 29'999 * 6);
}

TEST_CASE("sentence piece: training on a long text uses every k-th line") {
  const Folder folder;
  std::string text, third;
  for (int i = 0; i < 600; ++i) {
    const std::string line =
        "line " + std::to_string(100 + i * i % 811) + " of " + std::string(1 + i % 3, 'q') + " letters\n";
    text += line;
    if (i % 3 == 0) third += line;
  }
  write_file_atomically(folder / "text", text), write_file_atomically(folder / "third", third);
  const std::string setting = "sentence_piece(vocabulary=60)";
  const std::string max_sentence_bytes =
      std::to_string(text.size() * 2 / 5);  // half of the lines exceed it, so it takes every third
  const auto of_some =
      make_tokenizer("sentence_piece(vocabulary=60, most_bytes=" + max_sentence_bytes + ")", folder / "text");
  CHECK(of_some->save() == make_tokenizer(setting, folder / "third")->save());
  CHECK(of_some->save() != make_tokenizer(setting, folder / "text")->save());
}

TEST_CASE("sentence piece: invalid settings and models are errors") {
  const Folder folder;
  const std::string text = orrery::testing::write_small_text(folder);
  const auto refused = [&](const char* tokenizer) { return expect_error([&] { make_tokenizer(tokenizer, text); }); };
  refused("sentence_piece(vocabulary=5000)").names("tokenizer").value(5000).value("too high");
  refused("sentence_piece(vocabulary=3)").names("vocabulary").value(3);
  refused("sentence_piece(size=3)").names("size");
  refused("byte(3)").names("byte").value("byte(3)");
  expect_error([] { train_sentence_piece("\n\n", {}); }).names("tokenizer").value("spaces").offers("another text");
  write_file_atomically(folder / "none.model", "text, not a model");
  expect_error([&] { make_tokenizer(folder / "none.model", ""); }).names(folder / "none.model").value("SentencePiece");
  write_file_atomically(folder / "cut.model", "\n\5ab");  // the first field, of 5 bytes
  expect_error([&] { make_tokenizer(folder / "cut.model", ""); }).names(folder / "cut.model").value(5).value(2);
  for (const char* const rules : {"\x1a\3\x12\1x", "\x2a\3\x12\1x"}) {  // of normalization and denormalization
    write_file_atomically(folder / "rules.model", rules);
    expect_error([&] { make_tokenizer(folder / "rules.model", ""); }).names(folder / "rules.model").value("rules");
  }
  expect_error([] { restore_tokenizer(R"({"name": "sentence_piece", "model": "AAA"})"); })
      .names("tokenizer")
      .value(3)
      .names("base64")
      .offers(4);
  const auto tokenizer = make_tokenizer(golden, "");
  expect_error([&] { tokenizer->decode(std::vector<int32_t>{400}); }).names("tokenizer").value(400).offers("0 to 399");
}

TEST_CASE("base64: decoding restores the bytes, and invalid text is an error") {
  CHECK(base64("") == "");
  CHECK(base64("f") == "Zg==");
  CHECK(base64("fo") == "Zm8=");
  CHECK(base64("foobar") == "Zm9vYmFy");
  for (size_t length = 0; length < 300; length += 7) {
    std::string bytes;
    for (size_t i = 0; i < length; ++i) bytes.push_back(static_cast<char>(i * 37));
    CHECK(bytes_of_base64(base64(bytes), "x") == bytes);
  }
  expect_error([] { bytes_of_base64("Zg=", "x"); }).names("x").value(3).names("base64").offers(4);
  expect_error([] { bytes_of_base64("Z!==", "x"); }).names("x").value("byte 1").names("base64");
}

TEST_CASE("sentence piece: protobuf's log handler is off, so that it prints nothing next to an error message") {
  const char* const name =
      "_ZN6google8protobuf13SetLogHandlerEPFvNS0_8LogLevelEPKciRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEE";
  void* const found = ::dlsym(RTLD_DEFAULT, name);
  if (!found) {
    MESSAGE("skipped: this protobuf has no log handler");
    return;
  }
  const auto set_log_handler = reinterpret_cast<void* (*)(void*)>(found);
  CHECK(set_log_handler(nullptr) == nullptr);  // returns the previous handler, or null for none
}
