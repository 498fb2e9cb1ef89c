// The files of byte-level byte-pair encoding: tokenizer.json, vocab.json with merges.txt, and what a checkpoint holds.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/check.h"
#include "engine/base/files.h"
#include "models/data/byte_pairs.h"
#include "models/data/gzip.h"
#include "models/json.h"

namespace orrery::models {
namespace {

constexpr int64_t most_tokens = 1'000'000;

// One merge of two tokens, "Ġ t".
std::pair<std::string, std::string> merge_of(std::string_view line, std::string_view what) {
  const size_t space = line.find(' ');
  check(space != std::string_view::npos && line.find(' ', space + 1) == std::string_view::npos, what, ": '", line,
        "' is no merge: two tokens with a space between them");
  return {bytes_of_printable(line.substr(0, space), what), bytes_of_printable(line.substr(space + 1), what)};
}

// {"!": 0, ...}: as many numbers as tokens, from 0 on.  Tokens in `added`, by number, are text as it is.
std::vector<std::string> tokens_of(const SortedJson& numbers, const std::vector<std::pair<int64_t, std::string>>& added,
                                   const std::string& what) {
  check(numbers.is_object() && !numbers.empty(), what,
        ": the vocabulary must be an object of tokens and their numbers");
  int64_t size = static_cast<int64_t>(numbers.size());
  for (const auto& [number, text] : added) size = std::max(size, number + 1);
  check(size <= most_tokens, what, ": ", size, " tokens, more than the ", most_tokens, " that are read");
  std::vector<std::string> tokens(static_cast<size_t>(size));
  for (const auto& [number, text] : added) tokens[static_cast<size_t>(number)] = text;
  for (const auto& [token, value] : numbers.items()) {
    const bool whole = value.is_number_unsigned() && value.get<uint64_t>() < static_cast<uint64_t>(size);
    check(whole, what, ": the number of '", token, "' must be a whole one below ", size, ", the number of tokens");
    std::string& place = tokens[value.get<size_t>()];
    if (!place.empty() && place == token) continue;  // an added one
    check(place.empty(), what, ": number ", value.get<size_t>(), " is given twice");
    place = bytes_of_printable(token, what);
  }
  for (size_t i = 0; i < tokens.size(); ++i)
    check(!tokens[i].empty(), what, ": the vocabulary has no token number ", i);
  return tokens;
}

SortedJson read_json(const std::string& path) { return parse_large_json(read_data_file(path, largest_json), path); }

std::unique_ptr<Tokenizer> read_vocabulary_and_merges(const std::string& folder) {
  const std::string vocabulary_file = find_data_file(folder, {"vocab.json"}),
                    merges_file = find_data_file(folder, {"merges.txt"});
  const SortedJson numbers = read_json(vocabulary_file);
  BytePairVocabulary vocabulary;
  std::vector<std::pair<int64_t, std::string>> added;
  if (const auto end = numbers.is_object() ? numbers.find("<|endoftext|>") : numbers.end();
      end != numbers.end() && end->is_number_unsigned() && end->get<uint64_t>() < most_tokens)
    added.emplace_back(end->get<int64_t>(), end.key());
  vocabulary.tokens = tokens_of(numbers, added, vocabulary_file);
  for (const auto& one : added) vocabulary.added.push_back(static_cast<int32_t>(one.first));
  const std::string merges = read_data_file(merges_file, largest_json);
  for (size_t at = 0; at < merges.size();) {
    const size_t end = std::min(merges.find('\n', at), merges.size());
    std::string_view line = std::string_view(merges).substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && !(at == 0 && line.starts_with("#version")))
      vocabulary.merges.push_back(merge_of(line, merges_file));
    at = end + 1;
  }
  return make_byte_pairs(std::move(vocabulary), folder);
}

// A member of an object, which may be absent or null: then null.
const SortedJson& item(const SortedJson& object, const char* key) {
  static const SortedJson null;
  if (!object.is_object()) return null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}
bool is_true(const SortedJson& object, const char* key) { return item(object, key) == SortedJson(true); }

template <class... Parts>
void supported(bool is, const Parts&... parts) {
  if (!is) throw TokenizerNotSupported(text(parts...));
}

// Refused by name where it says what this program cannot do: a key that is neither absent nor one of these.
void must_be(const SortedJson& object, const char* key, std::initializer_list<SortedJson> harmless,
             const std::string& what) {
  const SortedJson& value = item(object, key);
  supported(value.is_null() || std::find(harmless.begin(), harmless.end(), value) != harmless.end(), what, ": \"", key,
            "\": ", value.dump(-1, ' ', false, SortedJson::error_handler_t::replace).substr(0, 100),
            " is not supported");
}

// The expression that cuts: ByteLevel alone has GPT-2's; after a Split it has that one's.
std::string pattern_of(const SortedJson& cutter, const std::string& what) {
  const auto check_byte_level = [&](const SortedJson& one) {
    supported(item(one, "type") == "ByteLevel", what, ": \"pre_tokenizer\" must end with ByteLevel");
    must_be(one, "add_prefix_space", {false}, what);
  };
  if (item(cutter, "type") != "Sequence") {
    check_byte_level(cutter);
    must_be(cutter, "use_regex", {true}, what);
    return gpt2_pattern;
  }
  const SortedJson& parts = item(cutter, "pretokenizers");
  supported(parts.is_array() && parts.size() == 2 && item(parts[0], "type") == "Split", what,
            ": a \"pre_tokenizer\" of several parts must be a Split and ByteLevel");
  must_be(parts[0], "behavior", {"Isolated"}, what);
  must_be(parts[0], "invert", {false}, what);
  check_byte_level(parts[1]);
  supported(item(parts[1], "use_regex") == SortedJson(false), what,
            ": \"use_regex\" of ByteLevel after a Split must be false");
  const SortedJson& expression = item(item(parts[0], "pattern"), "Regex");
  supported(expression.is_string(), what, ": \"pattern\" of a Split must be {\"Regex\": ...}");
  return expression.get<std::string>();
}

std::unique_ptr<Tokenizer> read_tokenizer_json(const std::string& path) {
  const SortedJson json = read_json(path);
  const SortedJson& model = item(json, "model");
  check(model.is_object(), path, ": it has no \"model\"");
  must_be(model, "type", {"BPE"}, path);
  must_be(json, "normalizer", {}, path);
  must_be(model, "dropout", {}, path);
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) must_be(model, key, {""}, path);
  must_be(model, "byte_fallback", {false}, path);
  must_be(model, "fuse_unk", {false, true}, path);
  BytePairVocabulary vocabulary;
  vocabulary.pattern = pattern_of(item(json, "pre_tokenizer"), path);
  vocabulary.whole_pieces = is_true(model, "ignore_merges");
  std::vector<std::pair<int64_t, std::string>> added;
  if (const SortedJson& list = item(json, "added_tokens"); list.is_array())
    for (const SortedJson& one : list) {
      const SortedJson &number = item(one, "id"), &words = item(one, "content");
      check(number.is_number_unsigned() && number.get<uint64_t>() < most_tokens && words.is_string() &&
                !words.get<std::string>().empty(),
            path, ": an added token needs an \"id\" below ", most_tokens, " and \"content\"");
      for (const char* key : {"lstrip", "rstrip", "single_word"}) must_be(one, key, {false}, path);
      added.emplace_back(number.get<int64_t>(), words.get<std::string>());
      vocabulary.added.push_back(static_cast<int32_t>(added.back().first));
    }
  vocabulary.tokens = tokens_of(item(model, "vocab"), added, path);
  const SortedJson& merges = item(model, "merges");
  check(merges.is_array(), path, ": \"merges\" must be a list");
  for (const SortedJson& one : merges) {
    if (one.is_string()) {
      vocabulary.merges.push_back(merge_of(one.get<std::string>(), path));
      continue;
    }
    check(one.is_array() && one.size() == 2 && one[0].is_string() && one[1].is_string(), path,
          ": a merge must be \"a b\" or [\"a\", \"b\"]");
    vocabulary.merges.emplace_back(bytes_of_printable(one[0].get<std::string>(), path),
                                   bytes_of_printable(one[1].get<std::string>(), path));
  }
  return make_byte_pairs(std::move(vocabulary), path);
}

std::unique_ptr<Tokenizer> restore(const std::string& text) {
  const std::string what(unreadable_tokenizer);
  const Json json = parse_json(text, what);
  BytePairVocabulary vocabulary;
  vocabulary.pattern = text_member(json, "pattern", what);
  vocabulary.whole_pieces = member(json, "whole_pieces", what) == Json(true);
  const auto words = [&](const Json& one) {
    check(one.is_string(), what, ": a token must be text in quotes");
    return one.get<std::string>();
  };
  for (const Json& token : list_member(json, "tokens", what))
    vocabulary.tokens.push_back(bytes_of_printable(words(token), what));
  for (const Json& merge : list_member(json, "merges", what))
    vocabulary.merges.push_back(merge_of(words(merge), what));
  for (const Json& number : list_member(json, "added", what)) {
    check(number.is_number_unsigned() && number.get<uint64_t>() < vocabulary.tokens.size(), what,
          ": an added token must be a number below ", vocabulary.tokens.size());
    vocabulary.added.push_back(number.get<int32_t>());
  }
  return make_byte_pairs(std::move(vocabulary), what);
}

bool is_tokenizer_json(const std::string& path) {
  return ends_with_or_packed(path, ".json") && !folder_exists(path);
}

std::unique_ptr<Tokenizer> read(const std::string& path) {
  if (is_tokenizer_json(path)) return read_tokenizer_json(path);
  const std::string one = find_data_file(path, {"tokenizer.json"});
  return one.empty() ? read_vocabulary_and_merges(path) : read_tokenizer_json(one);
}
bool reads(const std::string& path) {
  const auto holds = [&](const char* name) { return !find_data_file(path, {name}).empty(); };
  return is_tokenizer_json(path) || holds("tokenizer.json") || (holds("vocab.json") && holds("merges.txt"));
}

std::unique_ptr<Tokenizer> learn(const TextPieces& text, const Spec& spec) {
  BytePairSettings settings;
  read_settings(spec, settings);
  return learn_byte_pairs(text, settings.vocabulary);
}

REGISTER_TOKENIZER(byte_pair,
                   {.name = "byte_pair",
                    .description = "byte-level pairs as GPT-2's, learned from the text, byte_pair(vocabulary=8000), or "
                                   "from a folder with tokenizer.json, or vocab.json and merges.txt: "
                                   "--tokenizer=FOLDER",
                    .read = read,
                    .reads = reads,
                    .restore = restore,
                    .train = learn});

}  // namespace
}  // namespace orrery::models
