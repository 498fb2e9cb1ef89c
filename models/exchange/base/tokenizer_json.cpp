#include "models/exchange/base/tokenizer_json.h"

#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/files.h"
#include "models/data/base64.h"
#include "models/data/byte_pairs.h"
#include "models/data/sentence_piece_model.h"
#include "models/data/tokenizer.h"
#include "models/data/unicode.h"

namespace orrery::models {
namespace {

constexpr std::string_view what = "export: the tokenizer";

void write_json(const std::string& folder, const char* name, const Json& json) {
  write_file_atomically(folder + "/" + name, json.dump(2) + "\n");
}
void write_json(const std::string& folder, const char* name, const SortedJson& json) {
  write_file_atomically(folder + "/" + name, json.dump() + "\n");
}

// The names of the tokens that begin and end a text, as far as they have some.
Json config_with_marks(const Tokenizer& tokenizer, const std::vector<std::string>& names) {
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  const auto add = [&](const char* key, const std::optional<int32_t>& token) {
    if (token && !names[static_cast<size_t>(*token)].empty()) config[key] = names[static_cast<size_t>(*token)];
  };
  add("bos_token", tokenizer.begin()), add("eos_token", tokenizer.end_of_text());
  return config;
}

SortedJson tokenizer_json(const SortedJson& cutter, const SortedJson& decoder, const SortedJson& model) {
  return {{"version", "1.0"},        {"truncation", nullptr},     {"padding", nullptr},
          {"normalizer", nullptr},   {"post_processor", nullptr}, {"added_tokens", SortedJson::array()},
          {"pre_tokenizer", cutter}, {"decoder", decoder},        {"model", model}};
}

SortedJson added_token_json(const std::string& text, bool strips_left, bool strips_right) {
  return {{"content", text},        {"single_word", false}, {"lstrip", strips_left},
          {"rstrip", strips_right}, {"normalized", false},  {"special", true}};
}

// Puts the token that begins a text before each.
SortedJson beginning(const std::string& name, int32_t token) {
  const SortedJson special = {{"SpecialToken", {{"id", name}, {"type_id", 0}}}},
                   first = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
                   second = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
  return {{"type", "TemplateProcessing"},
          {"single", SortedJson::array({special, first})},
          {"pair", SortedJson::array({special, first, second})},
          {"special_tokens",
           {{name, {{"id", name}, {"ids", SortedJson::array({token})}, {"tokens", SortedJson::array({name})}}}}}};
}

void write_byte_pairs(const std::string& folder, const Json& saved, const Tokenizer& tokenizer) {
  SortedJson vocabulary = SortedJson::object(), added = SortedJson::array(), merges = SortedJson::array();
  const auto numbers = [&](const char* key) {
    std::set<int64_t> all;
    if (saved.contains(key))
      for (const Json& number : saved[key]) all.insert(number.get<int64_t>());
    return all;
  };
  const std::set<int64_t> as_text = numbers("added"), left = numbers("strips_left"), right = numbers("strips_right");
  std::vector<std::string> names;
  for (const Json& token : member(saved, "tokens", what)) {
    const auto number = static_cast<int64_t>(names.size());
    const auto printed = token.get<std::string>();
    const bool is_added = as_text.contains(number);
    names.push_back(is_added ? bytes_of_printable(printed, what) : printed);
    if (printed.empty()) continue;  // no token has that number
    vocabulary[names.back()] = number;
    if (!is_added) continue;
    added.push_back(added_token_json(names.back(), left.contains(number), right.contains(number)));
    added.back()["id"] = number;
  }
  for (const Json& merge : member(saved, "merges", what)) merges.push_back(merge.get<std::string>());
  const SortedJson byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}};
  const auto cutting = [&](bool itself) {
    SortedJson copy = byte_level;
    copy["use_regex"] = itself;
    return copy;
  };
  const std::string pattern = text_member(saved, "pattern", what);
  const SortedJson split = {
      {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  const SortedJson cutter =
      pattern == gpt2_pattern
          ? cutting(true)
          : SortedJson{{"type", "Sequence"}, {"pretokenizers", SortedJson::array({split, cutting(false)})}};
  SortedJson json = tokenizer_json(cutter, cutting(true),
                                   {{"type", "BPE"},
                                    {"dropout", nullptr},
                                    {"unk_token", nullptr},
                                    {"continuing_subword_prefix", nullptr},
                                    {"end_of_word_suffix", nullptr},
                                    {"fuse_unk", false},
                                    {"byte_fallback", false},
                                    {"ignore_merges", member(saved, "whole_pieces", what).get<bool>()},
                                    {"vocab", vocabulary},
                                    {"merges", merges}});
  json["added_tokens"] = added;
  if (tokenizer.begins_texts())
    json["post_processor"] = beginning(names[static_cast<size_t>(*tokenizer.begin())], *tokenizer.begin());
  write_json(folder, "tokenizer.json", json);
  write_json(folder, "tokenizer_config.json", config_with_marks(tokenizer, names));
}

// Byte-level pairs without a merge.
void write_bytes(const std::string& folder, const Tokenizer& tokenizer) {
  Json tokens = Json::array();
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(printable_bytes(std::string(1, static_cast<char>(byte))));
  write_byte_pairs(folder,
                   {{"pattern", gpt2_pattern},
                    {"whole_pieces", false},
                    {"added", Json::array()},
                    {"tokens", std::move(tokens)},
                    {"merges", Json::array()}},
                   tokenizer);
}

// Each character is a word.
void write_characters(const std::string& folder, const Json& saved, const Tokenizer& tokenizer) {
  const std::string characters = text_member(saved, "characters", what);
  SortedJson vocabulary = SortedJson::object();
  std::vector<std::string> names;
  for (size_t at = 0; at < characters.size();) {
    names.push_back(utf8(character_at(characters, at).point));
    vocabulary[names.back()] = names.size() - 1;
    at += names.back().size();
  }
  const SortedJson cutter = {
      {"type", "Split"}, {"pattern", {{"Regex", "[\\s\\S]"}}}, {"behavior", "Isolated"}, {"invert", false}};
  write_json(folder, "tokenizer.json",
             tokenizer_json(cutter, {{"type", "Fuse"}},
                            {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "<unk>"}}));
  write_json(folder, "tokenizer_config.json", config_with_marks(tokenizer, names));
}

void write_sentence_piece(const std::string& folder, const Json& saved, const Tokenizer& tokenizer) {
  const std::string model = bytes_of_base64(text_member(saved, "model", what), what);
  std::vector<std::string> names = sentence_piece_names(model, what);
  names.resize(static_cast<size_t>(std::max<int64_t>(tokenizer.size(), static_cast<int64_t>(names.size()))));
  Json added = Json::object();
  SortedJson decoder = SortedJson::object();
  bool strip = false;
  if (saved.contains("added"))
    for (const Json& each : saved["added"]) {
      const auto number = each.at("number").get<size_t>();
      names.resize(std::max(names.size(), number + 1));  // a model may know fewer of them
      names[number] = each.at("text").get<std::string>();
      added[names[number]] = number;
      const bool left = each.contains("strips_left"), right = each.contains("strips_right");
      decoder[std::to_string(number)] = added_token_json(names[number], left, right);
      strip |= left || right;
    }
  write_file_atomically(folder + "/tokenizer.model", model);
  Json config = config_with_marks(tokenizer, names);
  config["add_bos_token"] = tokenizer.begins_texts(), config["add_eos_token"] = false;
  if (strip) config["added_tokens_decoder"] = decoder;
  write_json(folder, "tokenizer_config.json", config);
  if (!added.empty()) write_json(folder, "added_tokens.json", added);
}

}  // namespace

bool write_tokenizer_files(const std::string& folder, const Json& saved) {
  const std::string name = text_member(saved, "name", what);
  const auto restored = restore_tokenizer(saved.dump());
  if (name == "byte_pair") write_byte_pairs(folder, saved, *restored);
  if (name == "sentence_piece") write_sentence_piece(folder, saved, *restored);
  if (name == "byte") write_bytes(folder, *restored);
  if (name == "character") write_characters(folder, saved, *restored);
  return name == "byte_pair" || name == "sentence_piece";
}

}  // namespace orrery::models
