#include "models/data/byte_pairs.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <queue>
#include <unordered_map>

#include "engine/types/check.h"
#include "models/data/added_tokens.h"
#include "models/formats/json.h"
#include "models/formats/unicode.h"

namespace orrery::models {
namespace {

constexpr int32_t no_token = -1;
constexpr size_t max_cached_bytes = 64, max_cached = 1 << 20;  // cached pre-tokens: bytes of one, number

struct Alphabet {
  std::array<char32_t, 256> character;
  std::array<int, 512> byte;  // -1: no character of the alphabet

  Alphabet() {
    byte.fill(-1);
    char32_t next = 256;
    for (char32_t b = 0; b < 256; ++b) {
      const bool prints = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      character[b] = prints ? b : next++;
      byte[character[b]] = static_cast<int>(b);
    }
  }
};
const Alphabet& alphabet() {
  static const Alphabet one;
  return one;
}

class BytePairs final : public Tokenizer {
 public:
  BytePairs(BytePairVocabulary vocabulary, std::string_view what)
      : vocabulary_(std::move(vocabulary)), pretokenizer_(vocabulary_.pattern) {
    const std::vector<std::string>& tokens = vocabulary_.tokens;
    const std::vector<bool> added = are_in(vocabulary_.added), printed = are_in(vocabulary_.printed),
                            left = are_in(vocabulary_.strips_left), right = are_in(vocabulary_.strips_right),
                            normalized = are_in(vocabulary_.normalized), skipped = are_in(vocabulary_.skipped);
    // An added token may have the bytes of another token; the merges then produce the other one.
    for (const bool are_added : {false, true})
      for (size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i].empty() || added[i] != are_added) continue;
        const auto [there, fresh] = number_of_.emplace(tokens[i], static_cast<int32_t>(i));
        check(fresh || (are_added && !added[static_cast<size_t>(there->second)]), what, ": token ", i, ", '",
              printable_bytes(tokens[i]), "', is defined twice");
      }
    const auto number = [&](const std::string& bytes) {
      const auto found = number_of_.find(bytes);
      check(found != number_of_.end(), what, ": token '", printable_bytes(bytes), "' is missing, but a merge needs it");
      return found->second;
    };
    for (const std::string& token : tokens)
      for (size_t i = 0; i + 1 < token.size(); ++i) together_[pair_of(token, i)] = true;
    for (size_t b = 0; b < 256; ++b) {
      const auto found = number_of_.find(std::string(1, static_cast<char>(b)));
      byte_token_[b] = found == number_of_.end() ? no_token : found->second;
    }
    for (const int32_t number : vocabulary_.added) {
      const auto i = static_cast<size_t>(number);
      added_.add({.number = number,
                  .text = printed[i] ? printable_bytes(tokens[i]) : tokens[i],
                  .strips_left = left[i],
                  .strips_right = right[i],
                  .normalized = normalized[i],
                  .skipped = skipped[i]});
    }
    added_.build_index();
    int32_t rank = 0;
    for (const auto& [left, right] : vocabulary_.merges)
      merges_.emplace(key(number(left), number(right)), Merge{rank++, number(left + right)});
    find_marks();
  }

  std::string name() const override { return "byte_pair"; }
  int64_t size() const override { return static_cast<int64_t>(vocabulary_.tokens.size()); }

  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> tokens;
    encode(text, false, tokens, nullptr);
    return tokens;
  }
  size_t encode_beginning(std::string_view text, std::vector<int32_t>& tokens) const override {
    return encode(text, true, tokens, nullptr);
  }
  size_t encode_with_ends(std::string_view text, bool whole, std::vector<int32_t>& tokens,
                          std::vector<size_t>& ends) const override {
    const bool exact =
        vocabulary_.strips_left.empty() && vocabulary_.strips_right.empty() && vocabulary_.printed.empty();
    return encode(text, !whole, tokens, exact ? nullptr : &ends);
  }
  // White space that a token strips is not decoded, and a printed token is decoded to its bytes.
  bool decodes_exactly(std::span<const int32_t> tokens) const override {
    for (const auto* const list : {&vocabulary_.strips_left, &vocabulary_.strips_right, &vocabulary_.printed})
      for (const int32_t number : *list)
        if (std::find(tokens.begin(), tokens.end(), number) != tokens.end()) return false;
    return true;
  }
  bool has_token(int32_t number) const override {
    return Tokenizer::has_token(number) && !vocabulary_.tokens[static_cast<size_t>(number)].empty();
  }
  bool is_mark(int32_t token) const override {
    return Tokenizer::has_token(token) && marks_[static_cast<size_t>(token)];
  }
  std::optional<int32_t> number_of_added(std::string_view text) const override { return added_.number_of(text); }
  std::vector<std::string> notes() const override { return vocabulary_.notes; }
  std::optional<int32_t> end_of_text() const override {
    for (const int32_t added : vocabulary_.added)
      for (const char* const name : {"<|endoftext|>", "<|end_of_text|>", "</s>"})
        if (vocabulary_.tokens[static_cast<size_t>(added)] == name) return added;
    return std::nullopt;
  }
  std::string decode(std::span<const int32_t> tokens) const override {
    std::string text;
    for (const int32_t token : tokens) {
      check_token(token, size());
      text += vocabulary_.tokens[static_cast<size_t>(token)];
    }
    return text;
  }
  std::string save() const override {
    Json tokens = Json::array(), merges = Json::array();
    for (const std::string& token : vocabulary_.tokens) tokens.push_back(printable_bytes(token));
    for (const auto& [left, right] : vocabulary_.merges)
      merges.push_back(printable_bytes(left) + " " + printable_bytes(right));
    Json saved{{"name", name()},
               {"pattern", vocabulary_.pattern},
               {"whole_pieces", vocabulary_.ignore_merges},
               {"added", vocabulary_.added},
               {"tokens", std::move(tokens)},
               {"merges", std::move(merges)}};
    BytePairVocabulary::each_kind(vocabulary_, [&](const char* key, const std::vector<int32_t>& numbers) {
      if (!numbers.empty()) saved[key] = numbers;
    });
    return json_text(saved);
  }

 private:
  struct Merge {
    int32_t rank, token;
  };
  using PretokenCache = std::unordered_map<std::string, std::vector<int32_t>>;

  std::vector<bool> are_in(const std::vector<int32_t>& list) const {
    std::vector<bool> all(vocabulary_.tokens.size());
    for (const int32_t number : list) all[static_cast<size_t>(number)] = true;
    return all;
  }
  // An added token that is also a byte or a result of merges is not a mark: other text gives it.
  void find_marks() {
    marks_ = are_in(vocabulary_.added);
    const auto clear = [&](int32_t token) {
      if (token != no_token) marks_[static_cast<size_t>(token)] = false;
    };
    std::ranges::for_each(byte_token_, clear);
    for (const auto& [pair, merge] : merges_) clear(merge.token);
    std::ranges::for_each(vocabulary_.ordinary, clear);
  }
  static uint64_t key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  }

  static size_t pair_of(std::string_view bytes, size_t i) {
    return static_cast<size_t>(static_cast<unsigned char>(bytes[i])) << 8 | static_cast<unsigned char>(bytes[i + 1]);
  }

  // Returns the bytes that were encoded: all, unless more text may follow and change the last
  // tokens. `ends` gets the offset after each token, unless it is null.
  size_t encode(std::string_view text, bool more, std::vector<int32_t>& tokens, std::vector<size_t>* ends) const {
    if (more && added_.can_strip()) return 0;
    PretokenCache cache;
    const auto take = [&](std::string_view pretoken) {
      const auto begin = static_cast<size_t>(pretoken.data() - text.data());
      encode(pretoken, begin, cache, tokens);
      for (size_t end = begin; ends && ends->size() < tokens.size(); ends->push_back(end))
        end += vocabulary_.tokens[static_cast<size_t>(tokens[ends->size()])].size();
    };
    AddedTokens::Matcher matcher(added_, text);
    const size_t reach = std::max<size_t>(1, added_.reach());
    // From here on, an added token may begin that the end of the text cuts off.
    const size_t certain = !more ? text.size() : text.size() < reach ? 0 : text.size() - reach + 1;
    for (size_t at = 0;;) {
      const AddedTokens::Found next = matcher.next(at);
      if (more && next.begin >= certain)
        return at >= certain ? at : at + pretokenizer_.each_complete(text.substr(at, certain - at), take);
      pretokenizer_.each(text.substr(at, next.begin - at), take);
      if (!next.token) return text.size();
      tokens.push_back(*next.token);
      if (ends) ends->push_back(std::max(next.begin, next.end));
      at = next.end;
    }
  }

  // `at`: offset of the pre-token in the text, for errors.
  void encode(std::string_view pretoken, size_t at, PretokenCache& cache, std::vector<int32_t>& tokens) const {
    if (pretoken.size() == 1) {
      tokens.push_back(token_of_byte(pretoken, 0, at));
      return;
    }
    if (vocabulary_.ignore_merges)
      if (const auto whole = number_of_.find(std::string(pretoken)); whole != number_of_.end()) {
        tokens.push_back(whole->second);
        return;
      }
    if (pretoken.size() > max_cached_bytes) {
      for (size_t begin = 0, end = 1; begin < pretoken.size(); begin = end++) {
        while (end < pretoken.size() && together_[pair_of(pretoken, end - 1)]) ++end;
        check_word_memory(end - begin);
        const std::vector<int32_t> merged = merge(pretoken.substr(begin, end - begin), at + begin);
        tokens.insert(tokens.end(), merged.begin(), merged.end());
      }
      return;
    }
    if (cache.size() > max_cached) cache.clear();
    const auto [entry, fresh] = cache.try_emplace(std::string(pretoken));
    if (fresh) entry->second = merge(pretoken, at);
    tokens.insert(tokens.end(), entry->second.begin(), entry->second.end());
  }

  int32_t token_of_byte(std::string_view pretoken, size_t i, size_t at) const {
    const int32_t token = byte_token_[static_cast<unsigned char>(pretoken[i])];
    if (token == no_token)
      fail("tokenizer: the vocabulary has no token for the byte '", printable_bytes(pretoken.substr(i, 1)),
           "' at byte ", at + i, " of the text; leave it out");
    return token;
  }

  // Merges pairs in a linked list of tokens; a heap holds the possible merges.
  std::vector<int32_t> merge(std::string_view pretoken, size_t at) const {
    struct Node {
      int32_t token;
      size_t before, after;  // nodes; `none`: the end
    };
    struct Candidate {
      int32_t rank;
      size_t left, right;
      int32_t left_token, right_token, merged;        // valid while the nodes hold these
      bool operator<(const Candidate& other) const {  // the heap's top: the first in the list, then the leftmost
        return rank != other.rank ? rank > other.rank : left > other.left;
      }
    };
    constexpr size_t none = static_cast<size_t>(-1);
    std::vector<Node> nodes(pretoken.size());
    std::vector<Candidate> room;
    room.reserve(nodes.size());
    std::priority_queue<Candidate> candidates({}, std::move(room));
    const auto consider = [&](size_t left, size_t right) {
      if (left == none || right == none) return;
      const int32_t a = nodes[left].token, b = nodes[right].token;
      if (const auto found = merges_.find(key(a, b)); found != merges_.end())
        candidates.push({found->second.rank, left, right, a, b, found->second.token});
    };
    for (size_t i = 0; i < nodes.size(); ++i)
      nodes[i] = {token_of_byte(pretoken, i, at), i == 0 ? none : i - 1, i + 1 == nodes.size() ? none : i + 1};
    for (size_t i = 0; i + 1 < nodes.size(); ++i) consider(i, i + 1);
    while (!candidates.empty()) {
      const Candidate c = candidates.top();
      candidates.pop();
      Node &left = nodes[c.left], &right = nodes[c.right];
      if (left.token != c.left_token || right.token != c.right_token || left.after != c.right) continue;
      left.token = c.merged, left.after = right.after;
      right.token = -1;  // gone
      if (left.after != none) nodes[left.after].before = c.left;
      consider(left.before, c.left);
      consider(c.left, left.after);
    }
    std::vector<int32_t> tokens;
    for (size_t i = 0; i != none; i = nodes[i].after) tokens.push_back(nodes[i].token);
    return tokens;
  }

  BytePairVocabulary vocabulary_;
  PreTokenizer pretokenizer_;
  std::unordered_map<std::string, int32_t> number_of_;
  std::unordered_map<uint64_t, Merge> merges_;
  std::array<int32_t, 256> byte_token_;
  // Pairs of consecutive bytes of any token. Merging takes about 80 bytes per byte, so long
  // pre-tokens are split: no merge crosses two bytes that are consecutive in no token.
  std::vector<bool> together_ = std::vector<bool>(size_t{1} << 16);
  AddedTokens added_;
  std::vector<bool> marks_;  // by token
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_pairs(BytePairVocabulary vocabulary, std::string_view what) {
  return std::make_unique<BytePairs>(std::move(vocabulary), what);
}

std::string printable_bytes(std::string_view bytes) {
  std::string all;
  for (const char c : bytes) all += utf8(alphabet().character[static_cast<unsigned char>(c)]);
  return all;
}
namespace {

// Converts characters up to the first one without a byte, at `at`; `count` characters precede it.
std::string bytes_of_printed(std::string_view printed, size_t& at, size_t& count) {
  std::string bytes;
  for (at = 0, count = 0; at < printed.size(); ++count) {
    const std::optional<Character> c = character_if_any(printed, at);
    const int byte = c && c->point < 512 ? alphabet().byte[c->point] : -1;
    if (byte < 0) break;
    bytes.push_back(static_cast<char>(byte));
    at += c->bytes;
  }
  return bytes;
}

}  // namespace

std::string bytes_of_printable(std::string_view printed, std::string_view what) {
  size_t at = 0, count = 0;
  std::string bytes = bytes_of_printed(printed, at, count);
  check(at == printed.size(), what, ": '", printed, "' is not a printed token: character ", count + 1,
        " stands for no byte");
  return bytes;
}
std::string bytes_if_printable(std::string_view text) {
  size_t at = 0, count = 0;
  std::string bytes = bytes_of_printed(text, at, count);
  return at == text.size() ? bytes : std::string(text);
}

}  // namespace orrery::models
