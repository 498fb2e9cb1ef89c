#include "models/data/added_tokens.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "engine/types/check.h"
#include "models/data/json_members.h"
#include "models/formats/unicode.h"

namespace orrery::models {

namespace {

// Unicode's White_Space, as \s of Hugging Face's tokenizers.
bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

// Returns the bytes of the white space at the end of a text.
size_t trailing_white_space(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0) {
    size_t at = begin - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    const auto c = character_if_any(text.substr(0, begin), at);
    if (!c || at + c->bytes != begin || !is_white_space(c->point)) break;
    begin = at;
  }
  return text.size() - begin;
}

// Returns the bytes of the white space at the beginning of a text.
size_t leading_white_space(std::string_view text) {
  size_t end = 0;
  while (end < text.size()) {
    const auto c = character_if_any(text, end);
    if (!c || !is_white_space(c->point)) break;
    end += c->bytes;
  }
  return end;
}

}  // namespace

void add_once(std::vector<AddedToken>& all, const AddedToken& token) {
  for (AddedToken& each : all)
    if (each.number == token.number && each.text == token.text) {
      each.strips_left |= token.strips_left, each.strips_right |= token.strips_right;
      each.special |= token.special;
      return;
    }
  all.push_back(token);
}

void AddedTokens::add(AddedToken token) {
  Kind& kind = token.normalized ? later_ : first_;
  kind.longest = std::max(kind.longest, token.text.size());
  strip_ |= token.strips_left || token.strips_right;
  kind.first_bytes.set(static_cast<unsigned char>(token.text.at(0)));
  const auto behind = std::upper_bound(kind.sorted.begin(), kind.sorted.end(), token.text,
                                       [&](const std::string& a, uint32_t b) { return a < all_[b].text; });
  kind.sorted.insert(behind, static_cast<uint32_t>(all_.size()));
  all_.push_back(std::move(token));
}

std::optional<int32_t> AddedTokens::number_of(std::string_view text) const {
  const auto found = std::ranges::find(all_, text, &AddedToken::text);
  return found == all_.end() ? std::nullopt : std::optional(static_cast<int32_t>(found->number));
}

// Tokens that share the text's first k bytes are adjacent; each byte narrows their range.
const AddedToken* AddedTokens::longest_at(const Kind& kind, std::string_view text) const {
  const AddedToken* longest = nullptr;
  auto begin = kind.sorted.begin(), end = kind.sorted.end();
  for (size_t k = 0; begin != end; ++k) {
    if (const AddedToken& shortest = all_[*begin]; shortest.text.size() == k) {
      longest = &shortest;
      begin = std::find_if(begin, end, [&](uint32_t i) { return all_[i].text.size() > k; });
    }
    if (k == text.size()) break;
    const auto byte_of = [&](uint32_t i) { return static_cast<unsigned char>(all_[i].text[k]); };
    const auto byte = static_cast<unsigned char>(text[k]);
    begin = std::lower_bound(begin, end, byte, [&](uint32_t i, unsigned char b) { return byte_of(i) < b; });
    end = std::upper_bound(begin, end, byte, [&](unsigned char b, uint32_t i) { return b < byte_of(i); });
  }
  return longest;
}

// A skipped token still occupies its bytes: no other token is found within them.
const AddedToken* AddedTokens::find(const Kind& kind, std::string_view text, size_t& at) const {
  if (!kind.sorted.empty())
    for (; at < text.size(); ++at) {
      if (!kind.first_bytes[static_cast<unsigned char>(text[at])]) continue;
      const AddedToken* const token = longest_at(kind, text.substr(at));
      if (token && !token->skipped) return token;
      if (token) at += token->text.size() - 1;
    }
  return nullptr;
}

AddedTokens::Matcher::Matcher(const AddedTokens& tokens, std::string_view text)
    : tokens_(tokens), text_(text), first_{0, 0, 0} {}

AddedTokens::Found AddedTokens::Matcher::next(size_t at) {
  if (first_.end <= at) {
    size_t begin = at;
    const AddedToken* const token = tokens_.find(tokens_.first_, text_, begin);
    first_ = with_stripped(begin, token, at, text_.size());
  }
  size_t begin = at;
  const AddedToken* const token = tokens_.find(tokens_.later_, text_.substr(0, first_.begin), begin);
  return token ? with_stripped(begin, token, at, first_.begin) : first_;
}
AddedTokens::Found AddedTokens::Matcher::with_stripped(size_t begin, const AddedToken* token, size_t from,
                                                       size_t to) const {
  if (!token) return {to, to, 0};
  Found found{begin, begin + token->text.size(), static_cast<int32_t>(token->number)};
  if (token->strips_left) found.begin -= trailing_white_space(text_.substr(from, begin - from));
  if (token->strips_right) found.end += leading_white_space(text_.substr(found.end, to - found.end));
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

AddedToken added_token(int64_t number, const SortedJson& json, const std::string& what) {
  const auto flag = [&](const char* key) {
    must_be(json, key, {false, true}, what);
    return item(json, key) == SortedJson(true);
  };
  const bool special = flag("special");
  const bool normalized = item(json, "normalized").is_null() ? !special : flag("normalized");
  return {number, item(json, "content").get<std::string>(), flag("lstrip"), flag("rstrip"), normalized, special};
}

SidecarTokens read_sidecar_tokens(const std::string& folder) {
  SidecarTokens found;
  std::string path;
  const SortedJson config = object_in(folder, "tokenizer_config.json", path);
  if (const SortedJson& decoder = item(config, "added_tokens_decoder"); decoder.is_object())
    for (const auto& [key, one] : decoder.items()) {
      int64_t number = -1;
      const auto read = std::from_chars(key.data(), key.data() + key.size(), number);
      const SortedJson& text = item(one, "content");
      check(read.ptr == key.data() + key.size() && number >= 0 && number < max_tokens && text.is_string() &&
                !text.get<std::string>().empty(),
            path, ": \"added_tokens_decoder\": '", key, "' must be a number below ", max_tokens,
            ", with a non-empty \"content\"");
      add_once(found.added, added_token(number, one, path));
      if (item(one, "single_word") == SortedJson(true))
        found.notes.push_back("tokenizer: " + path + " sets 'single_word' for " + text.get<std::string>() +
                              ", which is not supported; it is also matched within words");
    }
  must_be(config, "split_special_tokens", {false, true}, path);
  found.splits_special = item(config, "split_special_tokens") == SortedJson(true);
  const SortedJson added = object_in(folder, "added_tokens.json", path);
  for (const auto& [text, number] : added.items()) {
    check(number.is_number_unsigned() && number.get<uint64_t>() < max_tokens && !text.empty(), path, ": '", text,
          "' must be a token with a number below ", max_tokens);
    add_once(found.added, {.number = number.get<int64_t>(), .text = text, .normalized = true});
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

bool is_special(const AddedToken& token, const SidecarTokens& sidecar) {
  return token.special || std::binary_search(sidecar.special.begin(), sidecar.special.end(), token.text);
}
bool is_skipped(const AddedToken& token, const SidecarTokens& sidecar) {
  return token.skipped || (sidecar.splits_special && is_special(token, sidecar));
}

}  // namespace orrery::models
