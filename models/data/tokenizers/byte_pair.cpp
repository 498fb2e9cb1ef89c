// Files of byte-level BPE: tokenizer.json, vocab.json with merges.txt, and a checkpoint's JSON.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/settings/config.h"
#include "engine/system/files.h"
#include "engine/types/check.h"
#include "models/data/added_tokens.h"
#include "models/data/byte_pairs.h"
#include "models/data/json_members.h"
#include "models/data/lines.h"
#include "models/formats/gzip.h"

namespace orrery::models {
namespace {

// Qwen2Tokenizer's pattern; each digit is a pre-token.
constexpr const char* qwen2_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Reads a merge of two tokens, "Ġ t".
std::pair<std::string, std::string> merge_of(std::string_view line, std::string_view what) {
  const size_t space = line.find(' ');
  check(space != std::string_view::npos && line.find(' ', space + 1) == std::string_view::npos, what, ": '", line,
        "' is not a merge; write two tokens with a space between them");
  return {bytes_of_printable(line.substr(0, space), what), bytes_of_printable(line.substr(space + 1), what)};
}

// Returns the tokens of {"!": 0, ...} by number, "" for a missing number. Tokens in `added` are
// literal; one that is also in the vocabulary is matched in that form and has its bytes: `printed`.
std::vector<std::string> tokens_of(const SortedJson& numbers, const std::vector<AddedToken>& added,
                                   std::vector<int32_t>& printed, const std::string& what) {
  check(numbers.is_object() && !numbers.empty(), what,
        ": the vocabulary must be an object of tokens and their numbers");
  std::vector<std::string> tokens;
  const auto max_id = static_cast<int64_t>(8 * (numbers.size() + added.size()) + 4096);  // numbers may have gaps
  const auto token_at = [&](int64_t number) -> std::string& {
    check(number < max_id, what, ": a token has number ", number, ", but the number of tokens is ",
          numbers.size() + added.size());
    if (number >= static_cast<int64_t>(tokens.size())) tokens.resize(static_cast<size_t>(number) + 1);
    return tokens[static_cast<size_t>(number)];
  };
  for (const AddedToken& each : added) {
    const auto found = numbers.find(each.text);
    check(found == numbers.end() || *found == SortedJson(each.number), what, ": token ", each.number, ", '", each.text,
          "', is also in the vocabulary with another number");
    token_at(each.number) = each.text;
  }
  for (const auto& [token, value] : numbers.items()) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() >= max_tokens)
      fail(what, ": the number of '", token, "' is ", shortened(value), "; it must be a whole number below ",
           max_tokens);
    std::string& there = token_at(value.get<int64_t>());
    if (!there.empty() && there == token) {  // an added token
      there = bytes_if_printable(token);
      if (there != token) printed.push_back(value.get<int32_t>());
      continue;
    }
    check(there.empty(), what, ": number ", value.get<int64_t>(), " is used twice");
    there = bytes_of_printable(token, what);
  }
  return tokens;
}

// Sets the tokens of the vocabulary and of the files next to it.
void set_tokens(BytePairVocabulary& vocabulary, const SortedJson& numbers, std::vector<AddedToken> added,
                const SidecarTokens& sidecar, const std::string& what) {
  for (const AddedToken& each : sidecar.added) add_once(added, each);
  const auto is_added = [&](const std::string& text) {
    return std::any_of(added.begin(), added.end(), [&](const AddedToken& each) { return each.text == text; });
  };
  for (const std::string& special : sidecar.special) {
    const auto found = numbers.is_object() ? numbers.find(special) : numbers.end();
    if (found != numbers.end() && found->is_number_unsigned() && found->get<uint64_t>() < max_tokens)
      add_once(added, {found->get<int64_t>(), special});
    else if (!is_added(special))
      vocabulary.notes.push_back(text("tokenizer: ", special, " is named but has no number, so it is not a token"));
  }
  vocabulary.tokens = tokens_of(numbers, added, vocabulary.printed, what);
  for (const AddedToken& each : added) {
    const auto number = static_cast<int32_t>(each.number);
    vocabulary.added.push_back(number);
    if (each.strips_left) vocabulary.strips_left.push_back(number);
    if (each.strips_right) vocabulary.strips_right.push_back(number);
    if (each.normalized) vocabulary.normalized.push_back(number);
    if (is_skipped(each, sidecar)) vocabulary.skipped.push_back(number);
    if (!is_special(each, sidecar)) vocabulary.ordinary.push_back(number);
  }
  vocabulary.notes.insert(vocabulary.notes.end(), sidecar.notes.begin(), sidecar.notes.end());
  const auto gaps = std::count(vocabulary.tokens.begin(), vocabulary.tokens.end(), std::string());
  if (gaps > 0)
    vocabulary.notes.push_back(text("tokenizer: of ", vocabulary.tokens.size(), " numbers, ", gaps,
                                    gaps == 1 ? " has no token" : " have no tokens"));
}

SortedJson read_json(const std::string& path) { return parse_large_json(read_data_file(path, max_json_bytes), path); }

// Returns the "tokenizer_class" of tokenizer_config.json without "Fast", or "".
std::string class_in(const SortedJson& config) {
  const SortedJson& named = item(config, "tokenizer_class");
  std::string of = named.is_string() ? named.get<std::string>() : "";
  if (of.ends_with("Fast")) of.resize(of.size() - 4);
  return of;
}

// Classes of transformers 5.23 that use tokenizer_config.json for add_prefix_space.
constexpr std::string_view classes_with_space[] = {
    "GPT2Tokenizer",    "RobertaTokenizer", "BartTokenizer",  "LongformerTokenizer", "LEDTokenizer",
    "CodeGenTokenizer", "GPTNeoXTokenizer", "Qwen2Tokenizer", "Qwen3_5Tokenizer",    "WhisperTokenizer",
    "CohereTokenizer",  "DebertaTokenizer", "LukeTokenizer"};

void check_no_space_in_front(const std::string& folder, bool of_tokenizer_json) {
  std::string path;
  const SortedJson config = object_in(folder, "tokenizer_config.json", path);
  if (!of_tokenizer_json || std::ranges::count(classes_with_space, class_in(config)) > 0)
    must_be(config, "add_prefix_space", {false}, path);
}

// vocab.json and merges.txt have no pattern; the tokenizer class in tokenizer_config.json
// determines it. Without a class the pattern is GPT-2's, whose format this was first.
std::string pattern_of_class(const std::string& folder) {
  std::string path;
  const SortedJson config = object_in(folder, "tokenizer_config.json", path);
  const std::string of = class_in(config);
  if (of.empty()) return gpt2_pattern;
  for (const char* const same : {"GPT2Tokenizer", "RobertaTokenizer", "BartTokenizer", "LongformerTokenizer",
                                 "LEDTokenizer", "CodeGenTokenizer", "WhisperTokenizer", "PreTrainedTokenizer"})
    if (of == same) return gpt2_pattern;
  if (of == "Qwen2Tokenizer") return qwen2_pattern;
  throw TokenizerNotSupported(text(path, ": vocab.json and merges.txt do not define how ", of,
                                   " splits a text; save the tokenizer with tokenizer.json"));
}

std::unique_ptr<Tokenizer> read_vocabulary_and_merges(const std::string& folder, std::string pattern) {
  check_no_space_in_front(folder, false);
  const std::string vocabulary_file = find_data_file(folder, {"vocab.json"}),
                    merges_file = find_data_file(folder, {"merges.txt"});
  const SortedJson numbers = read_json(vocabulary_file);
  BytePairVocabulary vocabulary;
  vocabulary.pattern = std::move(pattern);
  SidecarTokens sidecar = read_sidecar_tokens(folder);
  const std::string end = "<|endoftext|>";
  if (numbers.is_object() && numbers.contains(end))
    sidecar.special.insert(std::ranges::lower_bound(sidecar.special, end), end);  // the list is sorted
  set_tokens(vocabulary, numbers, {}, sidecar, vocabulary_file);
  size_t lines = 0;
  uint64_t bytes = 0;
  const size_t max_merges = 8 * numbers.size() + 4096;  // several merges may give the same token
  const std::string what = "tokenizer: " + merges_file;
  each_line(merges_file, what, [&](std::string_view line) {
    check(++lines <= max_merges, what, " has more than ", max_merges, " lines, too many merges for a vocabulary of ",
          numbers.size(), " tokens; use the merges.txt of this vocabulary");
    check((bytes += line.size()) <= max_json_bytes, what, " has more than ", max_json_bytes,
          " bytes; use a smaller one");
    if (line.empty() || (lines == 1 && line.starts_with("#version"))) return;
    add_checked(vocabulary.merges, merge_of(line, merges_file), what, "use a smaller one");
  });
  return make_byte_pairs(std::move(vocabulary), folder);
}

template <class... Parts>
void supported(bool is, const Parts&... parts) {
  if (!is) throw TokenizerNotSupported(text(parts...));
}

// Returns the pattern: GPT-2's for ByteLevel alone, else the pattern of the Split before it.
std::string pattern_of(const SortedJson& cutter, const std::string& what) {
  const auto check_byte_level = [&](const SortedJson& one) {
    supported(item(one, "type") == "ByteLevel", what, ": \"pre_tokenizer\" ends with ", shortened(item(one, "type")),
              ", which is not supported; use a tokenizer with \"ByteLevel\" there");
    must_be(one, "add_prefix_space", {false}, what);
  };
  if (item(cutter, "type") != "Sequence") {
    check_byte_level(cutter);
    must_be(cutter, "use_regex", {true}, what);
    return gpt2_pattern;
  }
  const SortedJson& parts = item(cutter, "pretokenizers");
  supported(parts.is_array() && parts.size() == 2 && item(parts[0], "type") == "Split", what,
            ": \"pre_tokenizer\" is a sequence that is not supported; use a tokenizer with a Split and a ByteLevel");
  must_be(parts[0], "behavior", {"Isolated"}, what);
  must_be(parts[0], "invert", {false}, what);
  check_byte_level(parts[1]);
  supported(item(parts[1], "use_regex") == SortedJson(false), what,
            ": \"use_regex\" of ByteLevel after a Split is ", shortened(item(parts[1], "use_regex")),
            ", which is not supported; use a tokenizer with false");
  const SortedJson& expression = item(item(parts[0], "pattern"), "Regex");
  supported(expression.is_string(), what, ": \"pattern\" of a Split is ", shortened(item(parts[0], "pattern")),
            ", which is not supported; use a tokenizer with {\"Regex\": ...}");
  return expression.get<std::string>();
}

bool is_true(const SortedJson& object, const char* key) { return item(object, key) == SortedJson(true); }

std::unique_ptr<Tokenizer> read_tokenizer_json(const std::string& path, const SidecarTokens& sidecar) {
  const SortedJson json = read_json(path);
  const SortedJson& model = item(json, "model");
  check(model.is_object(), path, ": \"model\" is missing");
  must_be(model, "type", {"BPE"}, path);
  must_be(json, "normalizer", {}, path);
  must_be(model, "dropout", {0.0}, path);
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) must_be(model, key, {""}, path);
  must_be(model, "byte_fallback", {false}, path);
  must_be(model, "fuse_unk", {false, true}, path);
  BytePairVocabulary vocabulary;
  vocabulary.pattern = pattern_of(item(json, "pre_tokenizer"), path);
  vocabulary.ignore_merges = is_true(model, "ignore_merges");
  std::vector<AddedToken> added;
  if (const SortedJson& list = item(json, "added_tokens"); list.is_array())
    for (const SortedJson& one : list) {
      const SortedJson &number = item(one, "id"), &words = item(one, "content");
      check(number.is_number_unsigned() && number.get<uint64_t>() < max_tokens && words.is_string() &&
                !words.get<std::string>().empty(),
            path, ": an added token must have an \"id\" below ", max_tokens, " and a \"content\"");
      must_be(one, "single_word", {false}, path);
      added.push_back(added_token(number.get<int64_t>(), one, path));
    }
  set_tokens(vocabulary, item(model, "vocab"), std::move(added), sidecar, path);
  const SortedJson& merges = item(model, "merges");
  check_form(merges.is_array(), merges, "merges", path, "a list of pairs of tokens");
  for (const SortedJson& one : merges) {
    if (one.is_string()) {
      vocabulary.merges.push_back(merge_of(one.get<std::string>(), path));
      continue;
    }
    if (!one.is_array() || one.size() != 2 || !one[0].is_string() || !one[1].is_string())
      fail(path, ": a merge is ", shortened(one), "; it must be \"a b\" or [\"a\", \"b\"]");
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
  vocabulary.ignore_merges = member(json, "whole_pieces", what) == Json(true);
  const auto words = [&](const Json& one) {
    check(one.is_string(), what, ": a token must be text in quotes");
    return one.get<std::string>();
  };
  for (const Json& token : list_member(json, "tokens", what))
    vocabulary.tokens.push_back(bytes_of_printable(words(token), what));
  for (const Json& merge : list_member(json, "merges", what)) vocabulary.merges.push_back(merge_of(words(merge), what));
  const auto add_numbers = [&](const char* key, std::vector<int32_t>& to) {
    if (!json.contains(key)) return;
    for (const Json& number : list_member(json, key, what)) {
      check(number.is_number_unsigned() && number.get<uint64_t>() < vocabulary.tokens.size(), what,
            ": an added token must be a number below ", vocabulary.tokens.size());
      to.push_back(number.get<int32_t>());
    }
  };
  list_member(json, "added", what);
  add_numbers("added", vocabulary.added);
  BytePairVocabulary::each_kind(vocabulary, add_numbers);
  return make_byte_pairs(std::move(vocabulary), what);
}

bool is_tokenizer_json(const std::string& path) { return ends_with_or_packed(path, ".json") && !folder_exists(path); }

bool has_vocabulary_and_merges(const std::string& folder) {
  return !find_data_file(folder, {"vocab.json"}).empty() && !find_data_file(folder, {"merges.txt"}).empty();
}

// If tokenizer.json is not supported, the two older files may have the same tokens; the pattern is
// still read from tokenizer.json.
std::unique_ptr<Tokenizer> read(const std::string& path) {
  if (is_tokenizer_json(path)) return read_tokenizer_json(path, {});
  const std::string one = find_data_file(path, {"tokenizer.json"});
  if (one.empty()) return read_vocabulary_and_merges(path, pattern_of_class(path));
  try {
    check_no_space_in_front(path, true);
    return read_tokenizer_json(one, read_sidecar_tokens(path));
  } catch (const TokenizerNotSupported& error) {
    if (!has_vocabulary_and_merges(path)) throw;
    const SortedJson json = read_json(one), &cutter = item(json, "pre_tokenizer");
    return with_overrides(
        read_vocabulary_and_merges(path, cutter.is_null() ? pattern_of_class(path) : pattern_of(cutter, one)),
        {.notes = {error.what()}});
  }
}
bool reads(const std::string& path) {
  return is_tokenizer_json(path) || !find_data_file(path, {"tokenizer.json"}).empty() ||
         has_vocabulary_and_merges(path);
}

std::unique_ptr<Tokenizer> train(const TextChunks& text, const Spec& spec, const TokenizerProgress& progress) {
  BytePairSettings settings;
  read_settings(spec, settings);
  return train_byte_pairs(text, settings.vocabulary, progress);
}

REGISTER_TOKENIZER(byte_pair,
                   {.name = "byte_pair",
                    .description = "byte-level BPE as in GPT-2, trained on the text, byte_pair(vocabulary=8000), or "
                                   "read from a folder with tokenizer.json, or vocab.json and merges.txt: "
                                   "--tokenizer=FOLDER",
                    .read = read,
                    .reads = reads,
                    .restore = restore,
                    .train = train});

}  // namespace
}  // namespace orrery::models
