// Learning byte pairs: Sennrich et al. 2016, arXiv:1508.07909, algorithm 1, on pieces of a text.
//   count the pieces; each is its bytes at first;
//   again and again the pair of neighbours that is most frequent in all pieces becomes a token
// Of equally frequent pairs the one whose tokens are older is taken, so the same text gives the same tokens.  A merge
// changes the counts of the pairs around its places alone: they are kept, and a heap tells the most frequent one; what
// the heap says may be of before, and is compared with the count.
#include <algorithm>
#include <optional>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "engine/base/check.h"
#include "models/data/byte_pairs.h"

namespace orrery::models {
namespace {

constexpr std::string_view end_of_text = "<|endoftext|>";

struct Word {  // a piece of the text
  std::vector<int32_t> tokens;
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

// The pieces of all texts between ends of text, with how often each is there, in the order of their bytes.
std::vector<Word> words_of(const TextPieces& text) {
  const Pieces cut(gpt2_pattern);
  std::unordered_map<std::string, int64_t> counts;
  const auto count = [&](std::string_view piece) { ++counts[std::string(piece)]; };
  std::string waiting;  // what comes next decides its pieces
  text.each([&](std::string_view more, uint64_t) {
    waiting += more;
    size_t at = 0;
    for (size_t end; (end = waiting.find(end_of_text, at)) != std::string::npos; at = end + end_of_text.size())
      cut.each(std::string_view(waiting).substr(at, end - at), count);
    const size_t certain = waiting.size() - std::min(waiting.size(), end_of_text.size() - 1);  // it may have begun
    if (at < certain) at += cut.each_certain(std::string_view(waiting).substr(at, certain - at), count);
    waiting.erase(0, at);
  });
  cut.each(waiting, count);
  std::vector<std::pair<std::string, int64_t>> sorted(counts.begin(), counts.end());
  std::sort(sorted.begin(), sorted.end());
  std::vector<Word> words;
  for (const auto& [bytes, often] : sorted) {
    Word word{{}, often};
    for (const char c : bytes) word.tokens.push_back(static_cast<unsigned char>(c));
    words.push_back(std::move(word));
  }
  return words;
}

class Learning {
 public:
  explicit Learning(std::vector<Word> words) : words_(std::move(words)) {
    for (size_t i = 0; i < words_.size(); ++i)
      for (size_t k = 0; k + 1 < words_[i].tokens.size(); ++k)
        change({words_[i].tokens[k], words_[i].tokens[k + 1]}, words_[i].count, i);
    for (const auto& [pair, place] : places_) heap_.push({place.count, pair});
  }

  // None if no pair is there twice.
  std::optional<Pair> most_frequent() {
    while (!heap_.empty()) {
      const Candidate best = heap_.top();
      heap_.pop();
      const int64_t now = places_[best.pair].count;
      if (now == best.count && now > 1) return best.pair;
      if (now != best.count && now > 1) heap_.push({now, best.pair});
    }
    return std::nullopt;
  }

  void merge(const Pair& pair, int32_t token) {
    const Places places = std::move(places_[pair]);
    places_.erase(pair);
    std::unordered_set<Pair, PairHash> risen;
    for (const size_t i : places.words) {
      std::vector<int32_t>& tokens = words_[i].tokens;
      const int64_t often = words_[i].count;
      for (size_t k = 0; k + 1 < tokens.size(); ++k) {
        if (tokens[k] != pair.first || tokens[k + 1] != pair.second) continue;
        if (k > 0) {
          change({tokens[k - 1], pair.first}, -often, i), change({tokens[k - 1], token}, often, i);
          risen.insert({tokens[k - 1], token});
        }
        if (k + 2 < tokens.size()) {
          change({pair.second, tokens[k + 2]}, -often, i), change({token, tokens[k + 2]}, often, i);
          risen.insert({token, tokens[k + 2]});
        }
        tokens[k] = token;
        tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(k) + 1);
      }
    }
    places_.erase(pair);  // of equal tokens in a row it was its own neighbour
    for (const Pair& each : risen) heap_.push({places_[each].count, each});
  }

 private:
  struct Places {
    int64_t count = 0;
    std::unordered_set<size_t> words;  // where it is, or was
  };

  void change(const Pair& pair, int64_t by, size_t word) {
    Places& places = places_[pair];
    places.count += by;
    if (by > 0) places.words.insert(word);
  }

  std::vector<Word> words_;
  std::unordered_map<Pair, Places, PairHash> places_;
  std::priority_queue<Candidate> heap_;
};

}  // namespace

std::unique_ptr<Tokenizer> learn_byte_pairs(const TextPieces& text, int64_t vocabulary) {
  BytePairVocabulary learned;
  for (int byte = 0; byte < 256; ++byte) learned.tokens.emplace_back(1, static_cast<char>(byte));
  std::unordered_map<std::string, int32_t> number;
  for (const std::string& token : learned.tokens) number.emplace(token, static_cast<int32_t>(number.size()));
  Learning learning(words_of(text));
  while (static_cast<int64_t>(learned.tokens.size()) < vocabulary - 1) {
    const size_t so_far = learned.tokens.size() + 1;
    const std::optional<Pair> best = learning.most_frequent();
    check(best.has_value(), "tokenizer: this text has pairs for a vocabulary of ", so_far, ", not of ", vocabulary,
          "; give a longer text, or byte_pair(vocabulary=", so_far, ")");
    const std::string &left = learned.tokens[static_cast<size_t>(best->first)],
                      &right = learned.tokens[static_cast<size_t>(best->second)];
    learned.merges.emplace_back(left, right);
    // Two pairs may make the same bytes, a + bc and ab + c: then it is the same token.
    const auto [at, fresh] = number.emplace(left + right, static_cast<int32_t>(number.size()));
    learning.merge(*best, at->second);
    if (fresh) learned.tokens.push_back(at->first);
  }
  learned.added.push_back(static_cast<int32_t>(learned.tokens.size()));
  learned.tokens.emplace_back(end_of_text);
  return make_byte_pairs(std::move(learned), "tokenizer: what was learned");
}

}  // namespace orrery::models
