#include "models/data/added_tokens.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

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
  all_.push_back(std::move(token));
}

void AddedTokens::build_index() {
  std::vector<uint32_t> sorted[2];
  for (uint32_t i = 0; i < all_.size(); ++i) sorted[all_[i].normalized].push_back(i);
  for (std::vector<uint32_t>& each : sorted)
    std::stable_sort(each.begin(), each.end(), [&](uint32_t a, uint32_t b) { return all_[a].text < all_[b].text; });
  build(first_, std::move(sorted[0])), build(later_, std::move(sorted[1]));
}

// Texts with a common beginning are adjacent in `sorted`: a node is a range of them. Of equal texts
// the one that was added first is the token.
void AddedTokens::build(Kind& kind, std::vector<uint32_t> sorted) const {
  if (sorted.empty()) return;
  struct Range {
    size_t begin, end;
  };
  std::vector<Range> ranges = {{0, sorted.size()}};
  kind.nodes = {{}};
  for (uint32_t node = 0; node < ranges.size(); ++node) {
    const auto [begin, end] = ranges[node];
    const uint32_t depth = kind.nodes[node].depth;
    size_t at = begin;
    while (at < end && all_[sorted[at]].text.size() == depth) ++at;
    kind.nodes[node].first_child = static_cast<uint32_t>(ranges.size());
    while (at < end) {
      const auto byte = static_cast<unsigned char>(all_[sorted[at]].text[depth]);
      const size_t from = at;
      while (at < end && static_cast<unsigned char>(all_[sorted[at]].text[depth]) == byte) ++at;
      uint32_t suffix = 0;
      for (uint32_t shorter = node; shorter != 0 && suffix == 0;) {
        shorter = kind.nodes[shorter].suffix;
        suffix = child_of(kind, shorter, byte);
      }
      const bool is_token = all_[sorted[from]].text.size() == depth + 1;
      kind.nodes.push_back({.suffix = suffix,
                            .ending = is_token ? static_cast<uint32_t>(ranges.size()) : kind.nodes[suffix].ending,
                            .depth = depth + 1,
                            .token = is_token ? sorted[from] : 0,
                            .byte = byte});
      ranges.push_back({from, at});
      ++kind.nodes[node].children;
      if (node == 0) kind.first_bytes.set(byte);
    }
  }
}

uint32_t AddedTokens::child_of(const Kind& kind, uint32_t node, unsigned char byte) {
  const auto begin = kind.nodes.begin() + kind.nodes[node].first_child, end = begin + kind.nodes[node].children;
  const auto is_below = [](const Kind::Node& child, unsigned char b) { return child.byte < b; };
  const auto found = std::lower_bound(begin, end, byte, is_below);
  return found == end || found->byte != byte ? 0 : static_cast<uint32_t>(found - kind.nodes.begin());
}

std::optional<int32_t> AddedTokens::number_of(std::string_view text) const {
  const auto found = std::ranges::find(all_, text, &AddedToken::text);
  return found == all_.end() ? std::nullopt : std::optional(static_cast<int32_t>(found->number));
}

// After each byte, `node` is the longest end of the text that some token begins with. A token that
// is found counts until no token can begin before it or be longer at its begin.
const AddedToken* AddedTokens::first_from(const Kind& kind, std::string_view text, size_t& at) const {
  const AddedToken* first = nullptr;
  uint32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (node == 0 && !kind.first_bytes[byte]) {
      if (first) break;
      continue;
    }
    uint32_t next = child_of(kind, node, byte);
    for (; next == 0 && node != 0; next = child_of(kind, node, byte)) node = kind.nodes[node].suffix;
    node = next;
    const size_t end = i + 1;
    if (first && end - kind.nodes[node].depth > at) break;
    const uint32_t ending = kind.nodes[node].ending;
    if (ending == 0) continue;
    const size_t begin = end - kind.nodes[ending].depth;
    if (!first || begin <= at) first = &all_[kind.nodes[ending].token], at = begin;
  }
  return first;
}

// A skipped token still occupies its bytes: no other token is found within them.
const AddedToken* AddedTokens::find(const Kind& kind, std::string_view text, size_t& at) const {
  if (kind.longest == 0) return nullptr;
  check(!kind.nodes.empty(), "added tokens: build_index must follow the last add");
  while (const AddedToken* const token = first_from(kind, text, at)) {
    if (!token->skipped) return token;
    at += token->text.size();
  }
  return nullptr;
}

AddedTokens::Matcher::Matcher(const AddedTokens& tokens, std::string_view text)
    : tokens_(tokens), text_(text) {}

AddedTokens::Found AddedTokens::Matcher::next(size_t at) {
  const auto find = [&](const Kind& kind, size_t& from, size_t to) {
    size_t begin = from;
    const AddedToken* const token = tokens_.find(kind, text_.substr(0, to), begin);
    if (token) from = begin + token->text.size();
    return with_stripped(begin, token, at, to);
  };
  if (!first_) first_ = find(tokens_.first_, first_from_, text_.size()), later_from_ = at;
  const Found later = find(tokens_.later_, later_from_, first_->begin);
  return later.token ? later : *std::exchange(first_, std::nullopt);
}
AddedTokens::Found AddedTokens::Matcher::with_stripped(size_t begin, const AddedToken* token, size_t from,
                                                       size_t to) const {
  if (!token) return {to, to, {}};
  Found found{std::max(begin, from), begin + token->text.size(), static_cast<int32_t>(token->number)};
  if (token->strips_left) found.begin -= trailing_white_space(text_.substr(from, found.begin - from));
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
