#include "models/exchange/base/tokenizer_json.h"

#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/files.h"
#include "models/data/byte_pairs.h"

namespace orrery::models {

void write_byte_pair_files(const std::string& folder, const Json& saved) {
  const std::string what = "export: the tokenizer";
  SortedJson vocabulary = SortedJson::object(), added = SortedJson::array(), merges = SortedJson::array();
  std::set<int64_t> as_text;
  for (const Json& number : member(saved, "added", what)) as_text.insert(number.get<int64_t>());
  int64_t next = 0;
  std::string end_of_text;
  for (const Json& token : member(saved, "tokens", what)) {
    const int64_t number = next++;
    const auto printed = token.get<std::string>();
    if (!as_text.contains(number)) {
      vocabulary[printed] = number;
      continue;
    }
    const std::string words = bytes_of_printable(printed, what);
    vocabulary[words] = number, end_of_text = words;
    added.push_back({{"id", number},
                     {"content", words},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
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
  const SortedJson tokenizer = {{"version", "1.0"},
                                {"truncation", nullptr},
                                {"padding", nullptr},
                                {"added_tokens", added},
                                {"normalizer", nullptr},
                                {"pre_tokenizer", cutter},
                                {"post_processor", nullptr},
                                {"decoder", cutting(true)},
                                {"model",
                                 {{"type", "BPE"},
                                  {"dropout", nullptr},
                                  {"unk_token", nullptr},
                                  {"continuing_subword_prefix", nullptr},
                                  {"end_of_word_suffix", nullptr},
                                  {"fuse_unk", false},
                                  {"byte_fallback", false},
                                  {"ignore_merges", member(saved, "whole_pieces", what).get<bool>()},
                                  {"vocab", vocabulary},
                                  {"merges", merges}}}};
  write_file_atomically(folder + "/tokenizer.json", tokenizer.dump() + "\n");
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  if (!end_of_text.empty()) config["eos_token"] = end_of_text;
  write_file_atomically(folder + "/tokenizer_config.json", config.dump(2) + "\n");
}

}  // namespace orrery::models
