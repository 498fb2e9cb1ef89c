#include "models/interop/base/tokenizer_json.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "engine/system/files.h"
#include "models/data/added_tokens.h"
#include "models/data/byte_pairs.h"
#include "models/data/sentence_piece_model.h"
#include "models/data/tokenizer.h"
#include "models/formats/base64.h"
#include "models/formats/unicode.h"

namespace orrery::models {
namespace {

constexpr std::string_view what = "export: the tokenizer";

void write_json(const std::string& folder, const char* name, const Json& json) {
  write_file_atomically(folder + "/" + name, json_text(json, 2) + "\n");
}
void write_json(const std::string& folder, const char* name, const SortedJson& json) {
  write_file_atomically(folder + "/" + name, json_text(json) + "\n");
}

// Adds the names of the tokens that begin and end a text, if there are any.
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

SortedJson added_token_json(const AddedToken& token) {
  return {{"content", token.text},        {"single_word", false},           {"lstrip", token.strips_left},
          {"rstrip", token.strips_right}, {"normalized", token.normalized}, {"special", token.special}};
}

// Returns a post-processor that puts the begin token before each text.
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
  const std::set<int64_t> as_text = numbers("added"), left = numbers("strips_left"), right = numbers("strips_right"),
                          as_printed = numbers("printed"), normalized = numbers("normalized"),
                          skipped = numbers("skipped"), ordinary = numbers("ordinary");
  std::vector<std::string> names;
  for (const Json& token : member(saved, "tokens", what)) {
    const auto number = static_cast<int64_t>(names.size());
    const auto printed = token.get<std::string>();
    const bool is_added = as_text.contains(number);
    names.push_back(is_added && !as_printed.contains(number) ? bytes_of_printable(printed, what) : printed);
    if (printed.empty()) continue;  // unused id
    vocabulary[names.back()] = number;
    if (!is_added) continue;
    added.push_back(
        added_token_json({.number = number,
                          .text = names.back(),
                          .strips_left = left.contains(number),
                          .strips_right = right.contains(number),
                          .normalized = normalized.contains(number),
                          .special = !ordinary.contains(number) && (skipped.empty() || skipped.contains(number))}));
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
  Json config = config_with_marks(tokenizer, names);
  if (!skipped.empty()) config["split_special_tokens"] = true;
  write_json(folder, "tokenizer_config.json", config);
}

// Writes byte-level BPE without merges.
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

// Writes a WordLevel vocabulary of single characters.
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

// Returns a merge for each split of a piece into two pieces, ordered by the score of the result:
// SentencePiece picks merges by score, tokenizer.json by order.
SortedJson merges_of(const std::vector<SentencePieceEntry>& pieces) {
  std::map<std::string_view, size_t> tokens;
  for (size_t i = 0; i < pieces.size(); ++i) tokens.emplace(pieces[i].piece, i);
  using Merge = std::tuple<float, size_t, size_t>;  // -score, and the two
  std::vector<Merge> all;
  for (const SentencePieceEntry& each : pieces) {
    const std::string_view piece = each.piece;
    if (each.kind != SentencePieceEntry::Kind::normal) continue;
    for (size_t at = 1; at < piece.size(); ++at) {
      const auto left = tokens.find(piece.substr(0, at)), right = tokens.find(piece.substr(at));
      if (left != tokens.end() && right != tokens.end()) all.emplace_back(-each.score, left->second, right->second);
    }
  }
  std::sort(all.begin(), all.end());
  SortedJson merges = SortedJson::array();
  for (const auto& [score, left, right] : all)
    merges.push_back(SortedJson::array({pieces[left].piece, pieces[right].piece}));
  return merges;
}

SortedJson replacing(const SortedJson& what_is_found, const std::string& by) {
  return {{"type", "Replace"}, {"pattern", what_is_found}, {"content", by}};
}
SortedJson in_sequence(const char* parts, const SortedJson& all) { return {{"type", "Sequence"}, {parts, all}}; }

// Returns SentencePiece's processing as a tokenizer.json; null if that format does not support it.
SortedJson sentence_piece_json(const SentencePieceInfo& info) {
  const std::vector<SentencePieceEntry>& pieces = info.entries;
  const bool merges_pairs = !info.sums_scores && !info.finds_words;
  if (info.end_pieces || !info.are_escaped || info.finds_words) return nullptr;
  const std::string space = "\u2581";
  SortedJson normalizers = SortedJson::array();
  if (!info.rules.empty())
    normalizers.push_back({{"type", "Precompiled"}, {"precompiled_charsmap", base64(info.rules)}});
  if (info.in_a_row_are_one) {
    normalizers.push_back(replacing({{"Regex", info.one_in_front ? " +$" : "^ +| +$"}}, ""));
    normalizers.push_back(replacing({{"Regex", " {2,}"}}, " "));
  }
  normalizers.push_back(replacing({{"String", " "}}, space));
  // Metaspace prepends its character to the first pre-token, unless that begins with it: so a
  // leading space replaces the prepended one. Otherwise two are used: no text begins with " " here,
  // so the first always prepends one; the second writes it as U+2581.
  const auto metaspace = [](const std::string& character, const char* where) {
    return SortedJson{{"type", "Metaspace"}, {"replacement", character}, {"prepend_scheme", where}, {"split", false}};
  };
  SortedJson cutters = SortedJson::array();
  if (info.one_in_front && !info.in_a_row_are_one) cutters.push_back(metaspace(" ", "first"));
  cutters.push_back(metaspace(space, info.one_in_front && info.in_a_row_are_one ? "first" : "never"));
  SortedJson decoders = SortedJson::array({replacing({{"String", space}}, " ")});
  if (info.byte_fallback) decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  if (info.one_in_front) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});

  SortedJson of_model = {{"byte_fallback", info.byte_fallback}}, added = SortedJson::array();
  size_t unknown = pieces.size();
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].kind == SentencePieceEntry::Kind::unknown) unknown = i;
    if (pieces[i].kind != SentencePieceEntry::Kind::user_defined) continue;
    added.push_back(added_token_json({.number = static_cast<int64_t>(i), .text = pieces[i].piece}));
    added.back()["id"] = i;
  }
  if (unknown == pieces.size()) return nullptr;
  if (merges_pairs) {
    SortedJson vocabulary = SortedJson::object();
    for (size_t i = 0; i < pieces.size(); ++i) vocabulary[pieces[i].piece] = i;
    of_model.update({{"type", "BPE"},
                     {"dropout", nullptr},
                     {"unk_token", pieces[unknown].piece},
                     {"continuing_subword_prefix", nullptr},
                     {"end_of_word_suffix", nullptr},
                     {"fuse_unk", true},
                     {"ignore_merges", false},
                     {"vocab", vocabulary},
                     {"merges", merges_of(pieces)}});
  } else {
    SortedJson vocabulary = SortedJson::array();
    for (const SentencePieceEntry& each : pieces) vocabulary.push_back(SortedJson::array({each.piece, each.score}));
    of_model.update({{"type", "Unigram"}, {"unk_id", unknown}, {"vocab", vocabulary}});
  }
  SortedJson json = tokenizer_json(in_sequence("pretokenizers", cutters), in_sequence("decoders", decoders), of_model);
  json["normalizer"] = in_sequence("normalizers", normalizers);
  json["added_tokens"] = added;
  return json;
}

// Writes tokenizer.model, which orrery reads, and, if possible, tokenizer.json for other programs.
void write_sentence_piece(const std::string& folder, const Json& saved, const Tokenizer& tokenizer) {
  const std::string model = bytes_of_base64(text_member(saved, "model", what), what);
  const SentencePieceInfo info = sentence_piece_info(model, what);
  std::vector<std::string> names;
  for (const SentencePieceEntry& each : info.entries) names.push_back(each.piece);
  names.resize(static_cast<size_t>(std::max<int64_t>(tokenizer.size(), static_cast<int64_t>(names.size()))));
  Json added = Json::object();
  SortedJson decoder = SortedJson::object(), json = sentence_piece_json(info);
  bool has_kinds = false, any_skipped = false;
  if (saved.contains("added")) {
    for (const Json& each : saved["added"]) any_skipped |= each.contains("skipped");
    for (const Json& each : saved["added"]) {
      const auto number = each.at("number").get<size_t>();
      names.resize(std::max(names.size(), number + 1));  // added ids may exceed the model's
      names[number] = each.at("text").get<std::string>();
      added[names[number]] = number;
      const AddedToken one{.number = static_cast<int64_t>(number),
                           .text = names[number],
                           .strips_left = each.contains("strips_left"),
                           .strips_right = each.contains("strips_right"),
                           .normalized = each.contains("normalized"),
                           .special = !each.contains("ordinary") && (!any_skipped || each.contains("skipped"))};
      const SortedJson token = added_token_json(one);
      decoder[std::to_string(number)] = token;
      if (!json.is_null()) {
        json["added_tokens"].push_back(token);
        json["added_tokens"].back()["id"] = number;
      }
      has_kinds |= one.strips_left || one.strips_right || one.normalized || one.special || any_skipped;
    }
  }
  write_file_atomically(folder + "/tokenizer.model", model);
  Json config = config_with_marks(tokenizer, names);
  config["add_bos_token"] = tokenizer.begins_texts(), config["add_eos_token"] = false;
  if (has_kinds) config["added_tokens_decoder"] = decoder;
  if (any_skipped) config["split_special_tokens"] = true;
  write_json(folder, "tokenizer_config.json", config);
  if (!added.empty()) write_json(folder, "added_tokens.json", added);
  if (json.is_null()) return;
  if (tokenizer.begins_texts())
    json["post_processor"] = beginning(names[static_cast<size_t>(*tokenizer.begin())], *tokenizer.begin());
  write_json(folder, "tokenizer.json", json);
}

}  // namespace

bool write_tokenizer_files(const std::string& folder, const Json& saved) {
  const std::string name = text_member(saved, "name", what);
  const auto restored = restore_tokenizer(json_text(saved));
  if (name == "byte_pair") write_byte_pairs(folder, saved, *restored);
  if (name == "sentence_piece") write_sentence_piece(folder, saved, *restored);
  if (name == "byte") write_bytes(folder, *restored);
  if (name == "character") write_characters(folder, saved, *restored);
  return name == "byte_pair" || name == "sentence_piece";
}

}  // namespace orrery::models
