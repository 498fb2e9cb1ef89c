#include "models/data/text_ends.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "engine/system/files.h"
#include "engine/types/check.h"
#include "models/data/added_tokens.h"
#include "models/data/json_members.h"
#include "models/formats/gzip.h"

namespace orrery::models {
namespace {

// Names of the tokens before and after a text, and numbers of those before it.
struct Affixes {
  std::vector<std::string> before = {}, after = {};
  std::vector<int64_t> numbers = {};

  void add_before(const std::string& name, const SortedJson& number) {
    before.push_back(name);
    if (number.is_number_unsigned() && number.get<uint64_t>() < max_tokens) numbers.push_back(number.get<int64_t>());
  }
};

std::string name_of(const SortedJson& text) { return text.is_string() ? text.get<std::string>() : ""; }

// TemplateProcessing has {"single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": ...}, ...], "special_tokens":
// {"<s>": {"ids": [1]}}}; BertProcessing and RobertaProcessing have {"cls": ["<s>", 0], "sep": ["</s>", 2]}; a
// Sequence has several of them.
void add_processor(const SortedJson& processor, Affixes& affixes) {
  bool after = false;
  if (const SortedJson& single = item(processor, "single"); single.is_array())
    for (const SortedJson& part : single) {
      const SortedJson& special = item(part, "SpecialToken");
      after |= special.is_null();
      if (special.is_null()) continue;
      const std::string name = name_of(item(special, "id"));
      const SortedJson& ids = item(item(item(processor, "special_tokens"), name.c_str()), "ids");
      if (after)
        affixes.after.push_back(name);
      else if (ids.is_array() && !ids.empty())
        for (const SortedJson& number : ids) affixes.add_before(name, number);
      else
        affixes.add_before(name, {});
    }
  if (const SortedJson& first = item(processor, "cls"); first.is_array() && first.size() == 2)
    affixes.add_before(name_of(first[0]), first[1]);
  if (const SortedJson& last = item(processor, "sep"); last.is_array() && last.size() == 2)
    affixes.after.push_back(name_of(last[0]));
  if (const SortedJson& several = item(processor, "processors"); several.is_array())
    for (const SortedJson& each : several) add_processor(each, affixes);
}

TextEnds ends_of(const SortedJson& tokenizer, const std::string& path) {
  Affixes affixes;
  add_processor(item(tokenizer, "post_processor"), affixes);
  TextEnds ends{.begins = !affixes.before.empty()};
  if (!affixes.before.empty()) ends.name = affixes.before[0];
  if (!affixes.numbers.empty()) ends.number = affixes.numbers[0];
  if (affixes.before.size() > 1)
    ends.notes.push_back(text("tokenizer: ", path, " puts ", affixes.before.size(), " tokens before each text (",
                              join(affixes.before), "); here only the first is added"));
  if (!affixes.after.empty())
    ends.notes.push_back("tokenizer: " + path + " puts a token after each text (" + join(affixes.after) +
                         ", in its post_processor), which is not added here");
  return ends;
}

// Returns the text of "bos_token" or "eos_token", "<s>" or {"content": "<s>", ...}, if any. Like
// transformers, reads special_tokens_map.json first unless the other file has "added_tokens_decoder".
std::string name_of_special(const std::string& folder, const char* key) {
  std::string path;
  const SortedJson map = object_in(folder, "special_tokens_map.json", path),
                   config = object_in(folder, "tokenizer_config.json", path);
  const auto named = [&](const SortedJson& file) {
    const SortedJson& token = item(file, key);
    return name_of(token.is_object() ? item(token, "content") : token);
  };
  const bool map_is_later = item(config, "added_tokens_decoder").is_object();
  const std::string first = named(map_is_later ? config : map);
  return first.empty() ? named(map_is_later ? map : config) : first;
}

}  // namespace

TextEnds text_ends(const std::string& folder) {
  if (const std::string path = find_data_file(folder, {"tokenizer.json"}); !path.empty()) try {
      return ends_of(parse_large_json(read_data_file(path, max_json_bytes), path), path);
    } catch (const Error&) {  // reported where the tokenizer is read, if it is
      return {};
    }
  std::string path;
  const SortedJson config = object_in(folder, "tokenizer_config.json", path);
  const auto flag = [&](const char* key) {
    const SortedJson& value = item(config, key);
    check_form(value.is_null() || value.is_boolean(), value, key, path, "true or false");
    return value.is_null() ? std::optional<bool>() : value.get<bool>();
  };
  TextEnds ends{.begins = flag("add_bos_token"), .name = name_of_special(folder, "bos_token")};
  if (flag("add_eos_token").value_or(false))
    ends.notes.push_back("tokenizer: " + path +
                         " puts a token after each text ('add_eos_token'), which is not added here");
  return ends;
}

bool names_end(const std::string& folder, const Tokenizer& tokenizer) {
  const auto named = tokenizer.number_of_added(name_of_special(folder, "eos_token"));
  return named && named == tokenizer.end_of_text();
}

std::unique_ptr<Tokenizer> with_text_ends(std::unique_ptr<Tokenizer> tokenizer, const std::string& folder) {
  TextEnds ends = text_ends(folder);
  TokenizerOverrides overrides{.begins_texts = ends.begins.value_or(false), .notes = std::move(ends.notes)};
  if (*overrides.begins_texts) {
    std::optional<int64_t> number = ends.number;
    if (!number) number = tokenizer->number_of_added(ends.name);
    if (number && *number < tokenizer->size() && tokenizer->has_token(static_cast<int32_t>(*number)))
      overrides.begin = static_cast<int32_t>(*number);
    else if (!ends.name.empty())
      overrides.notes.push_back("tokenizer: " + folder + " puts " + ends.name +
                                " before each text, which is not one of its tokens");
  } else if (tokenizer->begin()) {  // from its model; byte pairs have none, and no text begins with it
    overrides.begin = tokenizer->number_of_added(name_of_special(folder, "bos_token"));
  }
  if (const auto end = tokenizer->number_of_added(name_of_special(folder, "eos_token"));
      end != tokenizer->end_of_text())
    overrides.end = end;
  return with_overrides(std::move(tokenizer), std::move(overrides));
}

}  // namespace orrery::models
