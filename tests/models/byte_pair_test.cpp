// Byte-level byte-pair encoding against Hugging Face's tokenizers, and error messages.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/system/files.h"
#include "models/data/byte_pairs.h"
#include "models/data/pretokenizer.h"
#include "models/data/text_files.h"
#include "models/data/tokenizer.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::Folder;
using orrery::testing::Message;

namespace {

const std::string golden = ORRERY_SOURCE_DIR "/tests/models/byte_pair";

std::unique_ptr<Tokenizer> tokenizer_at(const std::string& path) { return make_tokenizer(path, ""); }

std::vector<std::string> pre_tokens_of(const std::string& text) {
  std::vector<std::string> all;
  PreTokenizer(gpt2_pattern).each(text, [&](std::string_view pre_token) { all.emplace_back(pre_token); });
  return all;
}

void check_cases(const Tokenizer& tokenizer, const std::string& name) {
  const nlohmann::json cases = nlohmann::json::parse(read_file(golden + "/cases.json"));
  CHECK(cases[name].size() == 16);
  for (const nlohmann::json& one : cases[name]) {
    const std::string text = one["text"];
    INFO(text);
    const std::vector<int32_t> tokens = tokenizer.encode(text);
    CHECK(tokens == one["tokens"].get<std::vector<int32_t>>());
    CHECK(tokenizer.decode(tokens) == text);
  }
}

// Makes a tokenizer from a tokenizer.json with one change.
std::unique_ptr<Tokenizer> tokenizer_with(const std::function<void(nlohmann::json&)>& change,
                                          const std::string& name = "gpt2") {
  const Folder folder;
  nlohmann::json json = nlohmann::json::parse(read_file(golden + "/" + name + "/tokenizer.json"));
  change(json);
  write_file_atomically(folder / "tokenizer.json", json.dump());
  return tokenizer_at(folder / "tokenizer.json");
}

}  // namespace

TEST_CASE("byte pairs: tokens equal those of Hugging Face's tokenizers, from either form of files") {
  check_cases(*tokenizer_at(golden + "/gpt2"), "gpt2");  // tokenizer.json takes precedence
  check_cases(*tokenizer_at(golden + "/gpt2/tokenizer.json"), "gpt2");
  check_cases(*tokenizer_at(golden + "/split"), "split");
  const Folder folder;
  for (const char* file : {"vocab.json", "merges.txt"})
    std::filesystem::copy_file(golden + "/gpt2/" + file, folder / file);
  check_cases(*tokenizer_at(folder / ""), "gpt2");
  REQUIRE(std::system(("gzip '" + (folder / "vocab.json") + "' '" + (folder / "merges.txt") + "'").c_str()) == 0);
  check_cases(*tokenizer_at(folder / ""), "gpt2");
  std::filesystem::copy_file(golden + "/gpt2/tokenizer.json", folder / "tokenizer.json");
  REQUIRE(std::system(("gzip '" + (folder / "tokenizer.json") + "'").c_str()) == 0);
  check_cases(*tokenizer_at(folder / "tokenizer.json.gz"), "gpt2");
}

TEST_CASE("byte pairs: decoding restores any bytes, and a checkpoint restores an equal tokenizer") {
  for (const char* name : {"/gpt2", "/split"}) {
    const auto tokenizer = tokenizer_at(golden + name);
    CHECK(tokenizer->size() == 420);
    const auto restored = restore_tokenizer(tokenizer->save());
    CHECK(restored->save() == tokenizer->save());
    std::mt19937 random(7);
    for (int trial = 0; trial < 50; ++trial) {
      std::string bytes;
      for (int i = 0; i < 200; ++i) bytes.push_back(static_cast<char>(random() % (trial % 2 ? 256 : 128)));
      const std::vector<int32_t> tokens = tokenizer->encode(bytes);
      CHECK(tokenizer->decode(tokens) == bytes);
      CHECK(restored->encode(bytes) == tokens);
    }
  }
}

TEST_CASE("byte pairs: a long pre-token takes about as long as many short ones") {
  const auto tokenizer = tokenizer_at(golden + "/gpt2");
  const std::string text(1 << 20, 'e');
  CHECK(tokenizer->decode(tokenizer->encode(text)) == text);  // takes minutes if each merge scans all of it
}

TEST_CASE("pre-tokens: GPT-2's expression, bytes outside UTF-8, and invalid expressions") {
  using Strings = std::vector<std::string>;
  CHECK(pre_tokens_of("I'll go  now, 12 times!\n\n x") ==
        Strings{"I", "'ll", " go", " ", " now", ",", " 12", " times", "!", "\n\n", " x"});
  CHECK(pre_tokens_of("a\xff\xfe b\xc3") == Strings{"a", "\xff\xfe", " b", "\xc3"});
  CHECK(pre_tokens_of("") == Strings{});
  expect_error([] { PreTokenizer("(a"); }).names("(a").value("missing closing parenthesis");
  const PreTokenizer slow("(a+)+$");
  const std::string many = std::string(40, 'a') + "b";
  expect_error([&] { slow.each(many, [](auto) {}); }).names("(a+)+$").value("match limit exceeded");
  const PreTokenizer backwards(R"(x(\Ka)|a|(?<=\g<1>)b)");  // b's match begins at the a before it
  expect_error([&] { backwards.each("ab", [](auto) {}); }).names(R"(x(\Ka)|a)").offers(R"(remove \K)");
}

TEST_CASE("byte pairs: the error for files with an unsupported option names the key") {
  struct Wrong {
    std::function<void(nlohmann::json&)> change;
    std::string named, value, allowed = "";
  };
  const auto json = [](const char* text) { return nlohmann::json::parse(text); };
  for (const Wrong& each : std::vector<Wrong>{
           {[](auto& j) { j["model"]["type"] = "WordPiece"; }, "\"type\"", "\"WordPiece\""},
           {[&](auto& j) { j["normalizer"] = json(R"({"type": "NFC"})"); }, "\"normalizer\"", R"({"type":"NFC"})"},
           {[](auto& j) { j["model"]["dropout"] = 0.1; }, "\"dropout\"", "0.1", "0.0 or null"},
           {[](auto& j) { j["model"]["end_of_word_suffix"] = "</w>"; }, "\"end_of_word_suffix\"", "\"</w>\""},
           {[](auto& j) { j["model"]["byte_fallback"] = true; }, "\"byte_fallback\"", "true"},
           {[](auto& j) { j["pre_tokenizer"]["add_prefix_space"] = true; }, "\"add_prefix_space\"", "true"},
           {[](auto& j) { j["pre_tokenizer"]["type"] = "Whitespace"; }, "\"pre_tokenizer\"", "Whitespace", "ByteLevel"},
           {[](auto& j) { j["added_tokens"][0]["single_word"] = true; }, "\"single_word\"", "true"},
           {[](auto& j) { j["added_tokens"][0]["id"] = 500; }, "500", "<|endoftext|>"},
           {[](auto& j) { j["model"]["vocab"] = {1, 2}; }, "vocabulary", "object"},
           {[](auto& j) { j["model"]["vocab"]["!"] = 9999; }, "9999", "421"},
           {[](auto& j) { j["model"]["vocab"]["!"] = 5; }, "5", "twice"},
           {[](auto& j) { j["model"]["vocab"]["!"] = -1; }, "'!'", "-1", "1000000"},
           {[](auto& j) { j["model"]["merges"][0] = "abc"; }, "'abc'", "merge"},
           {[](auto& j) { j["model"]["merges"][0] = "q q"; }, "'qq'", "merge"},
           {[](auto& j) { j["model"]["merges"][0] = 7; }, "merge", "7", R"(["a", "b"])"},
           {[](auto& j) { j.erase("model"); }, "tokenizer.json", "\"model\""}}) {
    Message message = expect_error([&] { tokenizer_with(each.change); });
    message.names(each.named).value(each.value);
    if (!each.allowed.empty()) message.offers(each.allowed);
  }
  const auto removed = [](auto& j) { j["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed"; };
  expect_error([&] { tokenizer_with(removed, "split"); }).names("\"behavior\"").value("\"Removed\"");
}

TEST_CASE("byte pairs: a dropout of 0 is accepted as no dropout") {
  CHECK_NOTHROW(tokenizer_with([](auto& j) { j["model"]["dropout"] = 0.0; }));
}

TEST_CASE("byte pairs: a path with a tokenizer is recognized, another path is not") {
  const Folder folder;
  const auto refused = [&](const char* name) { return expect_error([&] { tokenizer_at(folder / name); }); };
  refused("").names(folder / "").offers("vocab.json").offers("merges.txt").offers("tokenizer.json");
  refused("absent").names(folder / "absent").offers("byte, byte_pair, character");
  expect_error([] { make_tokenizer("charater", ""); }).value("charater").offers("'character'");
  write_file_atomically(folder / "tokenizer.json", "{");
  refused("").names("tokenizer.json").names("line 1, column 2").value("JSON ends");
}

namespace {

// Implements algorithm 1 of Sennrich et al. 2016 directly: each merge counts all pairs anew.
std::vector<std::pair<std::string, std::string>> merges_by_recounting(const std::string& text, size_t wanted) {
  std::map<std::vector<std::string>, int> words;
  PreTokenizer(gpt2_pattern).each(text, [&](std::string_view pre_token) {
    std::vector<std::string> symbols;
    for (const char c : pre_token) symbols.emplace_back(1, c);
    ++words[symbols];
  });
  std::map<std::string, int> age;  // token -> order of creation
  for (int byte = 0; byte < 256; ++byte) age.emplace(std::string(1, static_cast<char>(byte)), byte);
  std::vector<std::pair<std::string, std::string>> merges;
  while (age.size() < wanted) {
    std::map<std::pair<std::string, std::string>, int> pairs;
    for (const auto& [symbols, count] : words)
      for (size_t i = 0; i + 1 < symbols.size(); ++i) pairs[{symbols[i], symbols[i + 1]}] += count;
    const auto first = [&](const auto& a, const auto& b) {
      if (a.second != b.second) return a.second > b.second;
      return std::pair(age.at(a.first.first), age.at(a.first.second)) <
             std::pair(age.at(b.first.first), age.at(b.first.second));
    };
    const auto best = *std::min_element(pairs.begin(), pairs.end(), first);
    merges.push_back(best.first);
    const std::string joined = best.first.first + best.first.second;
    age.emplace(joined, static_cast<int>(age.size()));
    std::map<std::vector<std::string>, int> merged;
    for (const auto& [before, count] : words) {
      std::vector<std::string> symbols = before;
      for (size_t i = 0; i + 1 < symbols.size(); ++i)
        if (symbols[i] == best.first.first && symbols[i + 1] == best.first.second)
          symbols[i] = joined, symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      merged[symbols] += count;
    }
    words = std::move(merged);
  }
  return merges;
}

void check_merges(const Tokenizer& trained, const std::string& text) {
  const auto merges = merges_by_recounting(text, static_cast<size_t>(trained.size()) - 1);
  const nlohmann::json saved = nlohmann::json::parse(trained.save());
  REQUIRE(saved["merges"].size() == merges.size());
  for (size_t i = 0; i < merges.size(); ++i)
    CHECK(saved["merges"][i] == printable_bytes(merges[i].first) + " " + printable_bytes(merges[i].second));
}

}  // namespace

TEST_CASE("byte pairs: trained merges equal those of the paper's algorithm") {
  std::string text = read_file(ORRERY_SOURCE_DIR "/examples/data/tinyshakespeare.txt").substr(0, 6000);
  text += " aaaa aaaaaaa aa abcabcabc bcbcabc    \n\n\n    \xff\xfe\xff\xfe caf\xc3\xa9 caf\xc3\xa9";
  const auto tokenizer = train_byte_pairs(text, 420);
  CHECK(tokenizer->size() == 420);
  CHECK(tokenizer->end_of_text() == 419);
  check_merges(*tokenizer, text);
  std::string bytes;
  for (int i = 0; i < 2000; ++i) bytes += static_cast<char>(i * i * 7 + i / 3);
  CHECK(tokenizer->decode(tokenizer->encode(bytes)) == bytes);
  CHECK(tokenizer->encode("a<|endoftext|>").back() == 419);
  CHECK(make_tokenizer("byte_pair(vocabulary=420)", [&] { return text; })->save() == tokenizer->save());
  const auto learn = [] { train_byte_pairs("abab", 300); };
  expect_error(learn).names("vocabulary").value(258).value(300).offers("byte_pair(vocabulary=258)");
}

TEST_CASE("byte pairs: trained merges of a long word equal those of the paper's algorithm") {
  std::string word;
  for (uint32_t drawn = 1; word.size() < 3000; drawn = drawn * 1664525 + 1013904223) word += "ACGT"[drawn >> 30];
  word += std::string(1000, 'A');
  for (int i = 0; i < 500; ++i) word += "CG";
  check_merges(*train_byte_pairs(word, 320), word);
}

TEST_CASE("byte pairs: an end-of-text token across two file chunks adds no training pairs") {
  std::string text;
  for (size_t end = TextFiles::chunk_size - 5; end <= 3 * TextFiles::chunk_size; end += TextFiles::chunk_size) {
    while (text.size() + 3 <= end) text += "ab ";
    text.append(end - text.size(), ' ');
    text += "<|endoftext|>";
  }
  const Folder folder;
  write_file_atomically(folder / "text.txt", text);
  const TextFiles files(folder / "text.txt");
  const Message refusal = expect_error([&] { train_byte_pairs(text, 5000); }).names("vocabulary").value(5000);
  CHECK(expect_error([&] { train_byte_pairs(files, 5000); }).message() == refusal.message());
}
