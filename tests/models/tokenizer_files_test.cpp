// Files of tokenizers that once failed; tests/cases/README.md names the programs for the values.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/system/files.h"
#include "models/data/prepared.h"
#include "models/data/text.h"
#include "models/data/tokenizer.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"
#include "tests/support/tokenizer_cases.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing::tokenizer_cases;
using orrery::testing::expect_error;
using orrery::testing::Folder;
using orrery::testing::Message;

TEST_CASE("tokenizers: a text's begin token and space follow the folder's files, as in transformers 5.24") {
  const Folder folder;
  const auto llama = [&](const std::string& config, const std::string& map = "{}") {
    with_file(folder, "llama_bos", "tokenizer_config.json", config);
    return tokenizer_of(with_file(folder, "llama_bos", "special_tokens_map.json", map));
  };
  CHECK(encode_text(*tokenizer_of(cases + "llama_bos"), "First") == Tokens{1, 83, 122});
  CHECK(encode_text(*llama(R"({"add_bos_token": true, "bos_token": "</s>"})"), "First") == Tokens{2, 83, 122});
  const auto mapped = llama(R"({"add_bos_token": true, "bos_token": "<s>"})", R"({"bos_token": {"content": "</s>"}})");
  CHECK(encode_text(*mapped, "First") == Tokens{2, 83, 122});
  CHECK(encode_text(*llama(R"({"bos_token": "</s>"})"), "First") == Tokens{83, 122});
  for (const char* const named : {"LlamaTokenizer", "LlamaTokenizerFast"})  // adds no begin token by itself
    CHECK(encode_text(*llama(text(R"({"bos_token": "<s>", "tokenizer_class": ")", named, "\"}")), "First") ==
          Tokens{83, 122});
  Message(notes_of(*llama(R"({"add_eos_token": true})"))).names("add_eos_token");
  const auto no_space = llama(R"({"tokenizer_class": "LlamaTokenizer", "add_prefix_space": false})");
  CHECK(no_space->encode("First Citizen") == Tokens{187, 122, 47, 108, 142});
  CHECK(no_space->decode(no_space->encode(" First")) == " First");
  CHECK(restore_tokenizer(no_space->save())->encode("First") == no_space->encode("First"));
  CHECK(llama(R"({"add_prefix_space": true})")->encode("First") == Tokens{83, 122});

  const auto gpt2 = [&](const char* processor, const std::string& config = "{}") {
    nlohmann::json json = nlohmann::json::parse(read_file(cases + "gpt2_end_of_text/tokenizer.json"));
    json["post_processor"] = nlohmann::json::parse(processor);
    with_file(folder, "gpt2_end_of_text", "tokenizer.json", json.dump());
    return tokenizer_of(with_file(folder, "gpt2_end_of_text", "tokenizer_config.json", config));
  };
  const char* const first_the = R"({"type": "Sequence", "processors": [{"type": "ByteLevel"}, {"type":
      "TemplateProcessing", "single": [{"SpecialToken": {"id": "the", "type_id": 0}}, {"Sequence": {"id": "A"}}],
      "special_tokens": {"the": {"id": "the", "ids": [258], "tokens": ["the"]}}}]})";
  CHECK(encode_text(*gpt2(first_the), "the gate") == Tokens{258, 84, 258, 300, 299, 69});
  CHECK(encode_text(*gpt2("null", R"({"add_bos_token": true, "bos_token": "<|endoftext|>"})"), "the gate") ==
        Tokens{84, 258, 300, 299, 69});
  const auto both_sides = gpt2(R"({"type": "RobertaProcessing", "sep": ["<|endoftext|>", 0],
      "cls": ["<|endoftext|>", 0]})");
  CHECK(encode_text(*both_sides, "the") == Tokens{0, 84, 258});
  Message(notes_of(*both_sides)).value("<|endoftext|>").names("post_processor");
  expect_error<TokenizerNotSupported>([&] {
    gpt2("null", R"({"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": true})");
  }).names("add_prefix_space");

  const auto added = [&](const std::string& config) {
    return tokenizer_of(with_file(folder, "added_tokens_json", "tokenizer_config.json", config));
  };
  CHECK(encode_text(*added(R"({"add_bos_token": true, "bos_token": "<|user|>"})"), "the") == Tokens{320, 83, 257});
  expect_error<TokenizerNotSupported>([&] { added(R"({"add_prefix_space": true})"); }).names("add_prefix_space");
}

TEST_CASE("tokenizers: the token between documents is eos_token of the folder's files, as in transformers 5.23") {
  const Folder folder;
  nlohmann::json json = nlohmann::json::parse(read_file(cases + "gpt2_end_of_text/tokenizer.json"));
  nlohmann::json &vocabulary = json["model"]["vocab"], &added = json["added_tokens"];
  vocabulary.erase("<|endoftext|>"), vocabulary["<|end|>"] = 0, added[0]["content"] = "<|end|>";
  const auto ended = [&](const std::string& config, const std::string& map = "{}") {
    with_file(folder, "gpt2_end_of_text", "tokenizer.json", json.dump());
    with_file(folder, "gpt2_end_of_text", "special_tokens_map.json", map);
    return tokenizer_of(with_file(folder, "gpt2_end_of_text", "tokenizer_config.json", config));
  };
  const std::string named = R"({"eos_token": "<|end|>"})";
  CHECK(!ended("{}")->end_of_text());
  CHECK(ended(named)->end_of_text() == 0);
  CHECK(restore_tokenizer(ended(named)->save())->end_of_text() == 0);
  const auto line_break = ended(R"({"eos_token": "\n"})");
  CHECK(!line_break->end_of_text());  // transformers gives it the id 320, which no model of this vocabulary has
  CHECK(line_break->encode("\n") == Tokens{199});
  Message(notes_of(*line_break)).value("has no number");
  const auto printed = ended(R"({"eos_token": "\u010a"})");  // as files write "\n"
  CHECK(printed->end_of_text() == 199);
  CHECK(!printed->is_mark(199));
  CHECK(ended(named)->is_mark(0));
  added.push_back(added[0]);
  added[1]["id"] = 320, added[1]["content"] = "</s>";
  CHECK(ended("{}")->end_of_text() == 320);  // by its name
  CHECK(ended(named)->end_of_text() == 0);
  CHECK(ended("{}", R"({"eos_token": {"content": "<|end|>", "lstrip": false}})")->end_of_text() == 0);
  CHECK(ended(named, R"({"eos_token": "</s>"})")->end_of_text() == 320);
  CHECK(ended(R"({"eos_token": "<|end|>", "added_tokens_decoder": {"0": {"content": "<|end|>", "special": true}}})",
              R"({"eos_token": "</s>"})")
            ->end_of_text() == 0);
  const auto split = ended(R"({"eos_token": "<|end|>", "split_special_tokens": true})");
  CHECK(split->end_of_text() == 0);
  CHECK(split->encode("the<|end|>") == Tokens{84, 258, 28, 92, 69, 268, 92, 30});

  std::filesystem::create_directory(folder / "texts");
  for (const char* const name : {"texts/1", "texts/2"}) write_file_atomically(folder / name, "the gate");
  prepare({.input = folder / "texts", .out = folder / "out", .tokenizer = folder / "gpt2_end_of_text"});
  const auto own = tokenizer_of_prepared(folder / "out");
  CHECK(own->end_of_text() == 0);
  CHECK(Text(folder / "texts", *own, 0).train().to_vector() ==
        Tokens{84, 258, 300, 299, 69, 0, 84, 258, 300, 299, 69, 0});
  const std::string saved = tokenizer_of(cases + "gpt2_end_of_text")->save();
  CHECK(!nlohmann::json::parse(saved).contains("end_token"));  // the same token as by its name

  with_file(folder, "llama_bos", "tokenizer_config.json", R"({"bos_token": "</s>", "eos_token": "<s>"})");
  const auto pieces = tokenizer_of(folder / "llama_bos");  // its model has <s> = 1 and </s> = 2
  CHECK(pieces->begin() == 2);
  CHECK(pieces->end_of_text() == 1);
}

TEST_CASE("tokenizers: the space that transformers 5.23 puts in front of texts is an error") {
  const Folder folder;
  const auto classed = [&](const std::string& name) {
    return tokenizer_of(with_file(folder, "gpt2_end_of_text", "tokenizer_config.json",
                                  R"({"add_prefix_space": true, "tokenizer_class": ")" + name + "\"}"));
  };
  for (const char* const name : {"GPT2Tokenizer", "Qwen2Tokenizer", "CodeGenTokenizerFast", "GPTNeoXTokenizerFast"})
    expect_error<TokenizerNotSupported>([&] { classed(name); }).names("add_prefix_space");
  CHECK(classed("PreTrainedTokenizerFast")->encode("the gate") == Tokens{84, 258, 300, 299, 69});
}

TEST_CASE("tokenizers: if tokenizer.json is not supported, vocab.json with merges.txt is used") {
  const Folder folder;
  const std::string copy = with_file(folder, "added_tokens_json", "tokenizer.json",
                                     R"({"normalizer": {"type": "NFC"}, "model": {"type": "BPE"}})");
  const auto tokenizer = tokenizer_of(copy);
  CHECK(tokenizer->encode("<|user|>the gate<|bot|>") == Tokens{320, 83, 257, 299, 298, 68, 321});
  Message(notes_of(*tokenizer)).names("normalizer");
}

TEST_CASE("tokenizers: vocab.json and merges.txt are split as tokenizer.json or the class next to them states") {
  const std::string year = "1984";
  const Folder folder;
  const auto classed = [&](const std::string& name) {
    return tokenizer_of(
        with_file(folder, "added_tokens_json", "tokenizer_config.json", R"({"tokenizer_class": ")" + name + "\"}"));
  };
  // Two merges that only GPT-2's expression keeps in one pre-token.
  const std::string merges = read_file(cases + "added_tokens_json/merges.txt");
  nlohmann::json vocabulary = nlohmann::json::parse(read_file(cases + "added_tokens_json/vocab.json"));
  vocabulary["19"] = 322, vocabulary["84"] = 323;
  with_file(folder, "added_tokens_json", "vocab.json", vocabulary.dump());
  with_file(folder, "added_tokens_json", "merges.txt", merges + "1 9\n8 4\n");
  const Tokens together = {322, 323};
  for (const char* name : {"GPT2Tokenizer", "GPT2TokenizerFast", "RobertaTokenizerFast"})
    CHECK(classed(name)->encode(year) == together);
  CHECK(classed("Qwen2Tokenizer")->encode(year).size() == 4);
  expect_error<TokenizerNotSupported>([&] { classed("OtherTokenizer"); })
      .names("OtherTokenizer")
      .offers("tokenizer.json");
  const char* const each_digit = R"({"normalizer": {"type": "NFC"}, "model": {"type": "BPE"}, "pre_tokenizer": {"type":
      "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "\\d|\\D+"}, "behavior": "Isolated",
      "invert": false}, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]}})";
  with_file(folder, "added_tokens_json", "tokenizer.json", each_digit);
  CHECK(classed("GPT2Tokenizer")->encode(year).size() == 4);
}

TEST_CASE("byte pairs: ids without a token are allowed, and a byte without a token is an error if a text has it") {
  const auto without_bytes = tokenizer_of(cases + "no_byte_alphabet");
  CHECK(without_bytes->encode("First Citizen: the old gate") == Tokens{146, 156, 6, 63, 99, 118, 87, 95, 35});
  expect_error([&] { without_bytes->encode("the \x01 gate"); }).names("vocabulary").value(4).offers("leave it out");
  CHECK(restore_tokenizer(without_bytes->save())->encode("the old gate") == without_bytes->encode("the old gate"));
  const Folder folder;
  const std::string with_gap = with_file(folder, "tokenizer_larger", "added_tokens.json", R"({"<|x|>": 324})");
  const auto tokenizer = tokenizer_of(with_gap);
  CHECK(tokenizer->size() == 325);
  CHECK(tokenizer->encode("the<|x|> gate<|pad|>") == Tokens{84, 258, 324, 300, 299, 69, 320});
  CHECK(!tokenizer->has_token(322));
  CHECK(tokenizer->decode(Tokens{84, 258, 322, 324}) == "the<|x|>");
  CHECK(ids_without_token(*tokenizer, 327) == Tokens{321, 322, 323, 325, 326});
  Message(notes_of(*tokenizer)).value(325).value(3).names("tokens");
  CHECK(restore_tokenizer(tokenizer->save())->save() == tokenizer->save());
}

TEST_CASE("tokenizers: files next to the main one name tokens, too") {
  const std::string text = "<|user|>the gate<|bot|>";
  const auto added = tokenizer_of(cases + "added_tokens_json");
  CHECK(added->encode(text) == Tokens{320, 83, 257, 299, 298, 68, 321});
  CHECK(added->decode(added->encode(text)) == text);
  CHECK(restore_tokenizer(added->save())->encode(text) == added->encode(text));
  const Folder folder;
  const std::string decoder = R"({"added_tokens_decoder": {"320": {"content": "<|user|>", "lstrip": false}}})";
  const std::string copy = with_file(folder, "added_tokens_json", "tokenizer_config.json", decoder);
  std::filesystem::remove(copy + "/added_tokens.json");
  const auto decoded = tokenizer_of(copy);
  CHECK(decoded->encode("<|user|>the") == Tokens{320, 83, 257});
  Message(notes_of(*decoded)).names("<|bot|>").value("no number");
  for (const std::string content : {"7", R"("")", "null"}) {
    const std::string wrong = R"({"added_tokens_decoder": {"320": {"content": )" + content + "}}}";
    const auto read = [&] { tokenizer_of(with_file(folder, "added_tokens_json", "tokenizer_config.json", wrong)); };
    expect_error(read).names("tokenizer_config.json").names("added_tokens_decoder").value("'320'").names("content");
  }
  // The added tokens of a SentencePiece model, as in transformers 5.24.
  const std::string llama = with_file(folder, "llama_bos", "added_tokens.json", R"({"<|im|>": 200})");
  const auto pieces = tokenizer_of(llama);
  CHECK(pieces->encode("First<|im|> Citizen: <|im|>Cit") == Tokens{83, 122, 200, 47, 108, 142, 167, 145, 200, 178, 16});
  CHECK(pieces->decode(pieces->encode("First<|im|> Citizen: <|im|>Cit")) == "First<|im|> Citizen: <|im|>Cit");
  CHECK(pieces->size() == 201);
  CHECK(restore_tokenizer(pieces->save())->save() == pieces->save());
  Tokens some;
  CHECK(pieces->encode_beginning("First<|im|> Citizen: <|im", some) < 21);
}

TEST_CASE("tokenizers: if tokenizer.json is not supported, a valid tokenizer.model is used") {
  const Folder folder;
  const std::string unsupported =
                        R"({"model": {"type": "BPE", "byte_fallback": true, "vocab": {"a": 0}, "merges": []}})",
                    copy = with_file(folder, "llama_bos", "tokenizer.json", unsupported);
  const auto tokenizer = tokenizer_of(copy);
  CHECK(tokenizer->name() == "sentence_piece");
  Message(notes_of(*tokenizer)).names("byte_fallback");
  std::filesystem::remove(copy + "/tokenizer.model");
  expect_error<TokenizerNotSupported>([&] { tokenizer_of(copy); }).names("byte_fallback");
}

TEST_CASE("tokenizers: their conventions of use are saved with them") {
  auto tokenizer = with_overrides(tokenizer_of(cases + "llama_bos"),
                                  {.begins_texts = true, .ends = Tokens{2, 7}, .vocabulary = 150});
  tokenizer = restore_tokenizer(tokenizer->save());
  CHECK(tokenizer->size() == 150);
  CHECK(tokenizer->begins_texts());
  CHECK(tokenizer->ends() == Tokens{2, 7});
  CHECK(encode_text(*tokenizer, "First") == Tokens{1, 83, 122});
  expect_error([&] { tokenizer->encode("First Citizen:"); }).names("tokenizer").value(167).offers(149);
  tokenizer = with_overrides(std::move(tokenizer), {.begins_texts = false, .ends = Tokens{}});
  tokenizer = restore_tokenizer(tokenizer->save());
  CHECK(encode_text(*tokenizer, "First") == Tokens{83, 122});
  CHECK(tokenizer->ends().empty());
  for (const char* const wrong : {R"("ends": 3)", R"("ends": [-1])", R"("ends": [999])", R"("begins_texts": 1)",
                                  R"("vocabulary": 0)", R"("begin_token": 256)"})
    expect_error([&] { restore_tokenizer(text(R"({"name": "byte", )", wrong, "}")); }).names("tokenizer");
}
