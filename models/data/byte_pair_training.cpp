// Training of byte pairs: Sennrich et al. 2016, arXiv:1508.07909, algorithm 1, on pre-tokens.
//   count the pre-tokens; each starts as its bytes;
//   repeatedly, the most frequent pair of adjacent tokens in all pre-tokens becomes a token
// Ties go to the pair with older tokens, so equal texts give equal tokens.
//
// All pre-tokens are in one array; adjacent tokens are linked. A merge changes only the counts of
// pairs next to it. A heap returns the most frequent pair; its entries may be outdated, so they are
// compared with the counts. So n bytes take about n log n steps, for pre-tokens of any length.
#include <algorithm>
#include <optional>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "engine/system/machine_memory.h"
#include "engine/types/check.h"
#include "engine/types/format.h"
#include "models/data/byte_pairs.h"

namespace orrery::models {
namespace {

constexpr std::string_view end_of_text = "<|endoftext|>";

struct Word {  // a pre-token
  std::string bytes;
  int64_t count;
};

using Pair = std::pair<int32_t, int32_t>;
struct PairHash {
  size_t operator()(const Pair& p) const {
    return std::hash<uint64_t>()(static_cast<uint64_t>(p.first) << 32 | static_cast<uint32_t>(p.second));
  }
};
struct Candidate {
  int64_t count;
  Pair pair;
  bool operator<(const Candidate& other) const {  // the heap's top is the largest
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

// Returns the pre-tokens of the texts between <|endoftext|>, with their counts, sorted by bytes.
std::vector<Word> words_of(const TextChunks& text) {
  const PreTokenizer pretokenizer(gpt2_pattern);
  std::unordered_map<std::string, int64_t> counts;
  const auto count = [&](std::string_view pretoken) { ++counts[std::string(pretoken)]; };
  std::string waiting;  // following text decides its pre-tokens
  size_t enough = 0;    // bytes to wait for: twice a size without a complete pre-token
  text.each([&](std::string_view more, uint64_t) {
    waiting += more;
    if (waiting.size() < enough) return;
    size_t at = 0;
    for (size_t end; (end = waiting.find(end_of_text, at)) != std::string::npos; at = end + end_of_text.size())
      pretokenizer.each(std::string_view(waiting).substr(at, end - at), count);
    const size_t complete =
        waiting.size() - std::min(waiting.size(), end_of_text.size() - 1);  // end_of_text may follow
    if (at < complete) at += pretokenizer.each_complete(std::string_view(waiting).substr(at, complete - at), count);
    enough = at > 0 ? 0 : 2 * waiting.size();
    waiting.erase(0, at);
  });
  pretokenizer.each(waiting, count);
  std::vector<Word> words;
  for (auto& [bytes, count_of_word] : counts) words.push_back({bytes, count_of_word});
  std::sort(words.begin(), words.end(), [](const Word& a, const Word& b) { return a.bytes < b.bytes; });
  return words;
}

class MergeTrainer {
 public:
  explicit MergeTrainer(const std::vector<Word>& words) {
    size_t all = 0;
    for (const Word& word : words) all += word.bytes.size();
    check(all < none, "tokenizer: the different words of the text have ", all,
          " bytes, but byte_pair is trained on fewer than ", none, "; use a shorter text");
    constexpr double of_byte = sizeof(Node) + 6 * sizeof(uint32_t);  // a node and its places in lists, which double
    const auto size = static_cast<double>(all);
    check_memory("tokenizer: training byte pairs on words of " + in_megabytes(size), of_byte * size,
                 "use a shorter text");
    nodes_.reserve(all);
    for (const Word& word : words) {
      const uint32_t begin = static_cast<uint32_t>(nodes_.size());
      counts_.push_back(word.count);
      for (const char c : word.bytes) {
        const auto here = static_cast<uint32_t>(nodes_.size());
        nodes_.push_back({static_cast<unsigned char>(c), here == begin ? none : here - 1, here + 1,
                          static_cast<uint32_t>(counts_.size() - 1)});
        if (here > begin) add(here - 1);
      }
      if (!word.bytes.empty()) nodes_.back().after = none;
    }
    for (const auto& [pair, occurrence] : occurrences_) heap_.push({occurrence.count, pair});
  }

  // Returns nothing if no pair occurs twice.
  std::optional<Pair> most_frequent() {
    while (!heap_.empty()) {
      const Candidate best = heap_.top();
      heap_.pop();
      const auto found = occurrences_.find(best.pair);
      const int64_t now = found == occurrences_.end() ? 0 : found->second.count;
      if (now == best.count && now > 1) return best.pair;
      if (now != best.count && now > 1) heap_.push({now, best.pair});
    }
    return std::nullopt;
  }

  void merge(const Pair& pair, int32_t token) {
    std::vector<uint32_t> at = std::move(occurrences_[pair].at);
    std::sort(at.begin(), at.end());  // from the left: of equal tokens, the first two merge
    std::unordered_set<Pair, PairHash> risen;
    for (const uint32_t left : at) {
      if (pair_at(left) != pair) continue;  // another merge has removed one of the two tokens
      const uint32_t right = nodes_[left].after, before = nodes_[left].before, after = nodes_[right].after;
      if (before != none) remove(before);
      if (after != none) remove(right);
      nodes_[left].token = token, nodes_[left].after = after;
      nodes_[right].token = gone;
      if (after != none) nodes_[after].before = left;
      if (before != none) risen.insert(add(before));
      if (after != none) risen.insert(add(left));
    }
    occurrences_.erase(pair);
    for (const Pair& each : risen)
      if (const auto found = occurrences_.find(each); found != occurrences_.end())
        heap_.push({found->second.count, each});
  }

 private:
  static constexpr uint32_t none = 0xFFFFFFFF;  // no node
  static constexpr int32_t gone = -1;           // no token: the bytes belong to another node
  struct Node {
    int32_t token;
    uint32_t before, after;  // in the same word
    uint32_t word;
  };
  struct Occurrences {
    int64_t count = 0;
    std::vector<uint32_t> at;  // where the pair begins, or began before a merge
  };

  Pair pair_at(uint32_t left) const {
    const Node& node = nodes_[left];
    return {node.token, node.token == gone || node.after == none ? gone : nodes_[node.after].token};
  }
  int64_t count_of(uint32_t node) const { return counts_[nodes_[node].word]; }
  Pair add(uint32_t left) {
    const Pair pair = pair_at(left);
    Occurrences& occurrences = occurrences_[pair];
    occurrences.count += count_of(left);
    occurrences.at.push_back(left);
    return pair;
  }
  void remove(uint32_t left) { occurrences_[pair_at(left)].count -= count_of(left); }

  std::vector<Node> nodes_;
  std::vector<int64_t> counts_;  // of the words
  std::unordered_map<Pair, Occurrences, PairHash> occurrences_;
  std::priority_queue<Candidate> heap_;
};

}  // namespace

std::unique_ptr<Tokenizer> train_byte_pairs(const TextChunks& text, int64_t vocabulary,
                                            const TokenizerProgress& progress) {
  BytePairVocabulary trained;
  for (int byte = 0; byte < 256; ++byte) trained.tokens.emplace_back(1, static_cast<char>(byte));
  std::unordered_map<std::string, int32_t> number;
  for (const std::string& token : trained.tokens) number.emplace(token, static_cast<int32_t>(number.size()));
  MergeTrainer trainer(words_of(text));
  while (static_cast<int64_t>(trained.tokens.size()) < vocabulary - 1) {
    const size_t so_far = trained.tokens.size() + 1;
    const std::optional<Pair> best = trainer.most_frequent();
    check(best.has_value(), "tokenizer: the text has pairs for a vocabulary of ", so_far, ", not of ", vocabulary,
          "; use a longer text, or byte_pair(vocabulary=", so_far, ")");
    const std::string &left = trained.tokens[static_cast<size_t>(best->first)],
                      &right = trained.tokens[static_cast<size_t>(best->second)];
    trained.merges.emplace_back(left, right);
    // Two pairs may give the same bytes, a + bc and ab + c, and then one token.
    const auto [at, fresh] = number.emplace(left + right, static_cast<int32_t>(number.size()));
    trainer.merge(*best, at->second);
    if (fresh) trained.tokens.push_back(at->first);
    if (progress) progress(static_cast<double>(trained.tokens.size() - 256) / static_cast<double>(vocabulary - 257));
  }
  trained.added.push_back(static_cast<int32_t>(trained.tokens.size()));
  trained.tokens.emplace_back(end_of_text);
  return make_byte_pairs(std::move(trained), "tokenizer: the trained vocabulary");
}

}  // namespace orrery::models
