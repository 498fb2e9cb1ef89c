// Tokens around and between texts, and long runs of white space.
#include <doctest/doctest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "models/data/added_tokens.h"
#include "models/interop/base/tokenizer_json.h"
#include "tests/support/tokenizer_cases.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing::tokenizer_cases;
using orrery::testing::Folder;

TEST_CASE("sentence piece: a run of spaces longer than a chunk is one space, in linear time") {
  const auto tokenizer = tokenizer_of(ORRERY_SOURCE_DIR "/tests/models/sentence_piece/small.model");
  const size_t max_bytes = size_t{1} << 24;  // bytes that are encoded at once
  const Tokens two = tokenizer->encode("First Citizen"), one = tokenizer->encode("First");
  const std::string spaces(max_bytes + 9, ' ');
  CHECK(tokenizer->encode("First" + spaces + "Citizen") == two);
  CHECK(tokenizer->encode("\xc3\xa4" + spaces + "First") == tokenizer->encode("\xc3\xa4 First"));
  CHECK(tokenizer->encode(spaces + "First" + spaces) == one);
}

TEST_CASE("tokenizers: white space around an added token belongs to the token if its files specify that") {
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
  // Expected tokens: transformers 5.24.
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
  CHECK(notes_of(*between).find("single_word") != std::string::npos);

  // Expected tokens: tokenizers 0.23.3.
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

TEST_CASE("added tokens: the first match in a text, and the longest there, is found in linear time among thousands") {
  AddedTokens all;
  int64_t number = 0;
  const auto add = [&](const std::string& text) { all.add({number++, text}); };
  for (const char* each : {"ab", "abcd", "b", "abc", "ab", "  ", "    ", "pqrs", "qr", "r!"}) add(each);
  all.build_index();
  struct Case {
    const char* text;
    size_t begin, end;
    std::optional<int32_t> token;
  };
  for (const Case& each : {Case{"xab", 1, 3, 0},
                           {"abcx", 0, 3, 3},
                           {"abcd", 0, 4, 1},
                           {"abce", 0, 3, 3},
                           {"xxb", 2, 3, 2},
                           {"x   y", 1, 3, 5},
                           {"x     y", 1, 5, 6},
                           {"xpqrs", 1, 5, 7},
                           {"xpqrt", 2, 4, 8},
                           {"xpqr!", 2, 4, 8},
                           {"xpr!", 2, 4, 9},
                           {"xyz", 3, 3, {}}}) {
    CAPTURE(each.text);
    const AddedTokens::Found found = AddedTokens::Matcher(all, each.text).next(0);
    CHECK(found.begin == each.begin);
    CHECK(found.end == each.end);
    CHECK(found.token == each.token);
  }
  for (int i = 0; i < 20'000; ++i) add("<|token_" + std::to_string(i) + "|>");
  all.build_index();
  std::string text;
  for (int i = 0; text.size() < 2'000'000; ++i)
    text += "some words <|token_" + std::to_string(i * 7919 % 20'000) + "|>";
  AddedTokens::Matcher matcher(all, text);
  const auto start = std::chrono::steady_clock::now();
  int64_t count = 0, sum = 0;
  for (size_t at = 0; at < text.size(); ++count) {
    const AddedTokens::Found found = matcher.next(at);
    sum += found.token.value();
    at = found.end;
  }
  CHECK(sum / count > 5'000);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));  // takes less than 1 s
}

TEST_CASE("added tokens: long tokens with a common beginning are matched in linear time") {
  AddedTokens all;
  std::string repeated;
  while (repeated.size() < 1000) repeated += "ab";
  for (int i = 0; i < 1000; ++i) {
    const std::string number = std::to_string(i);
    all.add({.number = 2 * i, .text = repeated + number});                                     // one long beginning
    all.add({.number = 2 * i + 1, .text = repeated.substr(0, static_cast<size_t>(i)) + "!"});  // a branch at each byte
  }
  all.build_index();
  std::string text;
  while (text.size() < 1'000'000) text += repeated;
  const auto start = std::chrono::steady_clock::now();
  const size_t last = text.size() - 1000;
  text += "77";
  const AddedTokens::Found found = AddedTokens::Matcher(all, text).next(0);
  CHECK(found.begin == last);
  CHECK(found.end == text.size());
  CHECK(found.token == 2 * 77);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(2));  // a search per position takes minutes
}

TEST_CASE("tokenizers: a token beyond the model's vocabulary begins and ends no text") {
  const auto known = [](int64_t vocabulary) {
    return with_overrides(tokenizer_of(cases + "llama_bos"), {.begins_texts = true, .vocabulary = vocabulary});
  };
  CHECK(known(3)->end_of_text() == 2);
  const auto without_end = restore_tokenizer(known(2)->save());
  CHECK(without_end->begin() == 1);
  CHECK(!without_end->end().has_value());
  CHECK(!without_end->end_of_text().has_value());
  const auto without_both = known(1);
  CHECK(!without_both->begin().has_value());
  CHECK(!without_both->begins_texts());
  auto ended = with_overrides(tokenizer_of(cases + "llama_bos"), {.ends = Tokens{2, 7}});
  CHECK(with_overrides(std::move(ended), {.vocabulary = 5})->ends() == Tokens{2});
}

namespace {

const std::string gpt2 = ORRERY_SOURCE_DIR "/tests/models/byte_pair/gpt2/tokenizer.json";

nlohmann::json added(int number, const char* text, bool normalized = false, bool special = false) {
  return {{"id", number},    {"content", text},    {"single_word", false},    {"lstrip", false},
          {"rstrip", false}, {"special", special}, {"normalized", normalized}};
}

struct TokensOfText {
  std::string text;
  Tokens tokens;
};

// Checks the tokens of a tokenizer: read from a folder, restored from a save, and exported.
void check_tokens(const std::string& folder, const std::vector<TokensOfText>& all) {
  const Folder exported;
  const auto tokenizer = tokenizer_of(folder), restored = restore_tokenizer(tokenizer->save());
  write_tokenizer_files(exported.path, nlohmann::ordered_json::parse(tokenizer->save()));
  const auto read_again = tokenizer_of(exported.path);
  for (const auto& [text, tokens] : all) {
    const std::string input = text;
    CAPTURE(input);
    CHECK(tokenizer->encode(text) == tokens);
    for (size_t chunk_size : {1, 5}) CHECK(divided(*tokenizer, text, chunk_size) == tokens);
    CHECK(restored->encode(text) == tokens);
    CHECK(read_again->encode(text) == tokens);
  }
}

}  // namespace

TEST_CASE("added tokens: an added token may have the bytes of another token or be in the vocabulary as written") {
  const Folder folder;
  nlohmann::json json = nlohmann::json::parse(read_file(gpt2));
  auto& vocabulary = json["model"]["vocab"];
  REQUIRE(vocabulary["\u00f6"] == 179);  // the byte 0xF6
  vocabulary["\u00c3\u00b6"] = 420, vocabulary["\u0120\u0120"] = 421;
  json["model"]["merges"].push_back({"\u00c3", "\u00b6"}), json["model"]["merges"].push_back({"\u0120", "\u0120"});
  for (const auto& each : {added(179, "\u00f6", true), added(422, "  ")}) json["added_tokens"].push_back(each);
  write_file_atomically(folder / "tokenizer.json", json.dump());
  // Expected tokens: transformers 5.23.
  check_tokens(folder.path, {{"\u00f6l  x \u2d96", {179, 76, 422, 88, 221, 159, 115, 245}},
                             {"  \n   y", {422, 199, 422, 277}},
                             {" \u00f6 \t  ", {221, 179, 221, 198, 422}}});
  const auto tokenizer = tokenizer_of(folder.path);
  CHECK(tokenizer->decode(Tokens{420}) == "\u00f6");
  CHECK(tokenizer->decode(Tokens{421}) == "  ");
  CHECK(tokenizer->decode(Tokens{422}) == "  ");
  CHECK(tokenizer->decode(Tokens{179}) == "\xf6");
}

TEST_CASE("added tokens: normalized tokens are found in the text between the others") {
  const Folder folder;
  nlohmann::json json = nlohmann::json::parse(read_file(gpt2));
  for (const auto& each : {added(420, "abc", true), added(421, "bcd"), added(422, "ab", true),
                           added(423, "abcdef", true), added(424, "xy"), added(425, "yz", true)})
    json["added_tokens"].push_back(each);
  write_file_atomically(folder / "tokenizer.json", json.dump());
  // Expected tokens: tokenizers 0.23.3.
  check_tokens(folder.path, {{"abcdef", {65, 421, 69, 70}},
                             {"abcx", {420, 88}},
                             {"abxyz", {422, 424, 90}},
                             {"zxyzyz", {90, 424, 90, 425}},
                             {"abcd", {65, 421}},
                             {"yzabcab", {425, 420, 422}}});
}

TEST_CASE("added tokens: a token within the white space that belongs to another is found too") {
  const Folder folder;
  const auto with = [&](bool normalized) {
    nlohmann::json json = nlohmann::json::parse(read_file(gpt2));
    nlohmann::json user = added(420, "<u>", normalized), system = added(422, "<s>", !normalized);
    user["rstrip"] = system["lstrip"] = system["rstrip"] = true;
    for (const auto& each : {user, added(421, "  ", normalized), system}) json["added_tokens"].push_back(each);
    write_file_atomically(folder / "tokenizer.json", json.dump());
    return folder.path;
  };
  // Expected tokens: tokenizers 0.23.3.
  const std::vector<TokensOfText> both = {{"<u>  x", {420, 421, 88}},   {"<u>   x", {420, 421, 221, 88}},
                                          {"<u>    x", {420, 421, 421, 88}}, {"<u>  ", {420, 421}},
                                          {"<u>  <u>y", {420, 421, 420, 89}}, {"x  <u>", {88, 421, 420}}};
  check_tokens(with(true), both);
  check_tokens(folder.path, {{"a  <s>  <u>  b", {65, 422, 420, 421, 66}},
                             {"<u>  <s>  x", {420, 422, 88}},
                             {"<u>   <s>", {420, 422}}});
  check_tokens(with(false), both);
  check_tokens(folder.path, {{"a  <s>  <u>  b", {65, 421, 422, 421, 420, 421, 66}},
                             {"<u>  <s>  x", {420, 421, 422, 421, 88}},
                             {"<u>   <s>", {420, 421, 422}}});
}

TEST_CASE("added tokens: special tokens are ordinary text with split_special_tokens") {
  const Folder folder;
  nlohmann::json json = nlohmann::json::parse(read_file(gpt2));
  for (const auto& each : {added(420, "<tok>"), added(421, "<im>", false, true), added(422, "<i")})
    json["added_tokens"].push_back(each);
  write_file_atomically(folder / "tokenizer.json", json.dump());
  const std::string text = "a<|endoftext|>b<tok>c<im>d<i";
  const auto with = [&](const char* config) {
    write_file_atomically(folder / "tokenizer_config.json", config);
    return folder.path;
  };
  // Expected tokens: transformers 5.23.
  check_tokens(with("{}"), {{text, {65, 0, 66, 420, 67, 421, 68, 422}}});
  check_tokens(with(R"({"split_special_tokens": true})"),
               {{text, {65, 28, 92, 69, 268, 79, 70, 84, 69, 88, 84, 92, 30, 66, 420, 67, 28, 316, 30, 68, 422}}});
  check_tokens(with(R"({"split_special_tokens": true, "eos_token": "<tok>"})"),
               {{text, {65, 28, 92, 69, 268, 79, 70, 84, 69,  88, 84, 92, 30,
                        66, 28, 84, 79, 75,  30, 67, 28, 316, 30, 68, 422}}});
  CHECK(tokenizer_of(folder.path)->decode(Tokens{0, 421}) == "<|endoftext|><im>");
}
