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
struct Around {
  std::vector<std::string> before = {}, behind = {};
  std::vector<int64_t> numbers = {};

  void add_before(const std::string& name, const SortedJson& number) {
    before.push_back(name);
    if (number.is_number_unsigned() && number.get<uint64_t>() < most_tokens) numbers.push_back(number.get<int64_t>());
  }
};

std::string name_of(const SortedJson& text) { return text.is_string() ? text.get<std::string>() : ""; }

// TemplateProcessing has {"single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": ...}, ...], "special_tokens":
// {"<s>": {"ids": [1]}}}; BertProcessing and RobertaProcessing have {"cls": ["<s>", 0], "sep": ["</s>", 2]}; a
// Sequence has several of them.
void add_processor(const SortedJson& processor, Around& around) {
  bool behind = false;
  if (const SortedJson& single = item(processor, "single"); single.is_array())
    for (const SortedJson& part : single) {
      const SortedJson& special = item(part, "SpecialToken");
      behind |= special.is_null();
      if (special.is_null()) continue;
      const std::string name = name_of(item(special, "id"));
      const SortedJson& ids = item(item(item(processor, "special_tokens"), name.c_str()), "ids");
      if (behind)
        around.behind.push_back(name);
      else if (ids.is_array() && !ids.empty())
        for (const SortedJson& number : ids) around.add_before(name, number);
      else
        around.add_before(name, {});
    }
  if (const SortedJson& first = item(processor, "cls"); first.is_array() && first.size() == 2)
    around.add_before(name_of(first[0]), first[1]);
  if (const SortedJson& last = item(processor, "sep"); last.is_array() && last.size() == 2)
    around.behind.push_back(name_of(last[0]));
  if (const SortedJson& several = item(processor, "processors"); several.is_array())
    for (const SortedJson& each : several) add_processor(each, around);
}

TextEnds ends_of(const SortedJson& tokenizer, const std::string& path) {
  Around around;
  add_processor(item(tokenizer, "post_processor"), around);
  TextEnds ends{.begins = !around.before.empty()};
  if (!around.before.empty()) ends.name = around.before[0];
  if (!around.numbers.empty()) ends.number = around.numbers[0];
  if (around.before.size() > 1)
    ends.notes.push_back(text("tokenizer: ", path, " puts ", around.before.size(), " tokens before each text (",
                              join(around.before), "); here only the first is added"));
  if (!around.behind.empty())
    ends.notes.push_back("tokenizer: " + path + " puts a token after each text (" + join(around.behind) +
                         ", in its post_processor), which is not added here");
  return ends;
}

// Returns the text of the folder's "bos_token" or "eos_token", "<s>" or {"content": "<s>", ...}, if any.
// Like transformers, reads special_tokens_map.json first unless the other file has "added_tokens_decoder".
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
      return ends_of(parse_large_json(read_data_file(path, largest_json), path), path);
    } catch (const Error&) {  // reported where the tokenizer is read, if it is
      return {};
    }
  std::string path;
  const SortedJson config = object_in(folder, "tokenizer_config.json", path);
  const auto flag = [&](const char* key) {
    const SortedJson& value = item(config, key);
    check(value.is_null() || value.is_boolean(), path, ": '", key, "' must be true or false");
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
  TokenizerUse use{.begins_texts = ends.begins.value_or(false), .notes = std::move(ends.notes)};
  if (*use.begins_texts) {
    std::optional<int64_t> number = ends.number;
    if (!number) number = tokenizer->number_of_added(ends.name);
    if (number && *number < tokenizer->size() && tokenizer->has_token(static_cast<int32_t>(*number)))
      use.begin = static_cast<int32_t>(*number);
    else if (!ends.name.empty())
      use.notes.push_back("tokenizer: " + folder + " puts " + ends.name +
                          " before each text, which is not one of its tokens");
  } else if (tokenizer->begin()) {  // from its model; byte pairs have none, and no text begins with it
    use.begin = tokenizer->number_of_added(name_of_special(folder, "bos_token"));
  }
  if (const auto end = tokenizer->number_of_added(name_of_special(folder, "eos_token"));
      end != tokenizer->end_of_text())
    use.end = end;
  return with_use(std::move(tokenizer), std::move(use));
}

}  // namespace orrery::models
