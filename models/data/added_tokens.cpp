#include "models/data/added_tokens.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "engine/base/check.h"
#include "models/data/json_members.h"

namespace orrery::models {

void AddedTokens::add(AddedToken token) {
  longest_ = std::max(longest_, token.text.size());
  all_.push_back(std::move(token));
}

AddedTokens::Places::Places(const AddedTokens& tokens, std::string_view text) : all_(tokens.all()), text_(text) {
  for (const AddedToken& each : all_) places_.push_back(text.find(each.text));
}
AddedTokens::Found AddedTokens::Places::next(size_t at) {
  Found found{text_.size(), text_.size(), 0};
  for (size_t i = 0; i < all_.size(); ++i) {
    if (places_[i] < at) places_[i] = text_.find(all_[i].text, at);
    if (places_[i] == text_.npos) continue;
    const size_t end = places_[i] + all_[i].text.size();
    if (places_[i] < found.begin || (places_[i] == found.begin && end > found.end))
      found = {places_[i], end, static_cast<int32_t>(all_[i].number)};
  }
  return found;
}

namespace {

// "<s>", or {"content": "<s>", ...}, or lists of them.
void add_special(const SortedJson& named, std::vector<std::string>& to) {
  if (named.is_array())
    for (const SortedJson& each : named) add_special(each, to);
  const SortedJson& text = named.is_object() ? item(named, "content") : named;
  if (text.is_string() && !text.get<std::string>().empty()) to.push_back(text.get<std::string>());
}

}  // namespace

TokensBeside tokens_beside(const std::string& folder) {
  TokensBeside found;
  const auto add = [&](const std::string& text, int64_t number) {
    for (const AddedToken& each : found.added)
      if (each.number == number && each.text == text) return;
    found.added.push_back({number, text});
  };
  std::string path;
  const SortedJson added = object_in(folder, "added_tokens.json", path);
  for (const auto& [text, number] : added.items()) {
    check(number.is_number_unsigned() && number.get<uint64_t>() < most_tokens && !text.empty(), path, ": '", text,
          "' needs a number below ", most_tokens);
    add(text, number.get<int64_t>());
  }
  const SortedJson config = object_in(folder, "tokenizer_config.json", path);
  if (const SortedJson& decoder = item(config, "added_tokens_decoder"); decoder.is_object())
    for (const auto& [key, one] : decoder.items()) {
      int64_t number = -1;
      const auto read = std::from_chars(key.data(), key.data() + key.size(), number);
      const SortedJson& text = item(one, "content");
      check(read.ptr == key.data() + key.size() && number >= 0 && number < most_tokens && text.is_string() &&
                !text.get<std::string>().empty(),
            path, ": \"added_tokens_decoder\": '", key, "' needs to be a number below ", most_tokens,
            " with \"content\"");
      check_plain_token(one, path);
      add(text.get<std::string>(), number);
    }
  const SortedJson map = object_in(folder, "special_tokens_map.json", path);
  for (const SortedJson* const file : {&map, &config})
    for (const char* const key : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token",
                                  "mask_token", "additional_special_tokens", "extra_special_tokens"})
      add_special(item(*file, key), found.special);
  std::sort(found.special.begin(), found.special.end());
  found.special.erase(std::unique(found.special.begin(), found.special.end()), found.special.end());
  return found;
}

}  // namespace orrery::models
