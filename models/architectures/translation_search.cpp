#include "models/architectures/translation_search.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "engine/system/machine_memory.h"
#include "engine/types/check.h"
#include "engine/types/format.h"
#include "models/settings/at_least_one.h"

namespace orrery::models {
namespace {

struct Hypothesis {
  std::vector<int32_t> tokens;
  double log_probability = 0;
};
struct Candidate {  // a hypothesis with one more token
  double log_probability;
  size_t row;
  int32_t token;
};
bool more_likely(const Candidate& a, const Candidate& b) {
  if (a.log_probability != b.log_probability) return a.log_probability > b.log_probability;
  return a.row != b.row ? a.row < b.row : a.token < b.token;
}

struct Sentence {  // a source in progress
  size_t number;
  int64_t limit;
  std::vector<size_t> rows;  // its unfinished hypotheses
  Hypothesis best = {};
  double best_score = 0;
  int64_t finished = 0;
};

// Selects rows of x (B, ...) by number.
Tensor chosen_rows(const Tensor& x, const Tensor& rows) {
  const int64_t elements = x.numel() / x.size(0);
  return index_select(x.reshape(Shape{x.size(0), elements}), rows).reshape(x.shape().with(0, rows.size(0)));
}

class Search {  // of one batch
 public:
  Search(TranslationModel& model, std::span<const std::vector<int32_t>> sources, std::vector<size_t> numbers,
         const SentenceMarks& marks, const SearchSettings& settings)
      : model_(model), marks_(marks), s_(settings), device_(nn::device_of(model)) {
    std::vector<std::vector<int32_t>> rows;
    for (const size_t number : numbers) {
      const auto length = static_cast<int64_t>(sources[number].size());
      const int64_t limit = std::min(s_.max_tokens ? s_.max_tokens : 2 * length + 20, model.context());
      sentences_.push_back({.number = number, .limit = limit, .rows = {rows.size()}});
      rows.push_back(sources[number]);
      lengths_.push_back(static_cast<int32_t>(length));
    }
    hypotheses_.resize(rows.size());
    check_search_memory();
    const auto [tokens, lengths] = padded(rows);
    model_.encode(tokens.to(device_), lengths.to(device_), pass_);
    pass_.cache = &cache_;
  }
  void run(std::vector<std::vector<int32_t>>& translations) {
    while (!sentences_.empty()) step();
    for (Sentence& done : done_) translations[done.number] = std::move(done.best.tokens);
  }

 private:
  // Throws if the candidates and logits of a step cannot fit when every beam is full.
  void check_search_memory() const {
    constexpr double logits_held = 3;  // logits, their exponentials, a copy
    const auto vocabulary = static_cast<double>(marks_.vocabulary), beam = static_cast<double>(s_.beam);
    double rows = 0;
    for (const Sentence& sentence : sentences_)
      rows += std::min(beam, std::pow(vocabulary, static_cast<double>(sentence.limit)));
    const double of_row = std::min(2 * beam, vocabulary) * sizeof(Candidate) + logits_held * sizeof(float) * vocabulary;
    check_memory(text("translate: ", pluralize(static_cast<int64_t>(sentences_.size()), "sentence"),
                      " at once with beam=", s_.beam),
                 rows * of_row, "use a smaller beam or batch_size");
  }
  // Returns the most likely tokens of each row.
  std::vector<std::vector<Candidate>> next_candidates() {
    std::vector<int32_t> last;
    for (const Hypothesis& h : hypotheses_) last.push_back(h.tokens.empty() ? marks_.begin : h.tokens.back());
    const auto rows = static_cast<int64_t>(last.size());
    const Tensor logits = model_(Tensor::from(Shape{rows, 1}, last).to(device_), pass_).to(Dtype::f32);
    const Tensor top = max(logits, -1, true), log_sum = log(sum(exp(logits - top), {-1}, true)) + top;
    const Tensor z = logits.to(Device::cpu), l = log_sum.to(Device::cpu);
    std::vector<std::vector<Candidate>> all;
    for (int64_t row = 0; row < rows; ++row) all.push_back(most_likely(z, l.data<float>()[row], row));
    return all;
  }
  std::vector<Candidate> most_likely(const Tensor& logits, double log_sum, int64_t row) const {
    check(std::isfinite(log_sum),
          "translate: the model's logits are not finite, because its weights are too large; use an earlier checkpoint");
    const int64_t tokens = std::min<int64_t>(logits.size(-1), marks_.vocabulary);
    const float* const z = logits.data<float>() + row * logits.size(-1);
    const auto max_candidates = static_cast<size_t>(std::min(2 * s_.beam, tokens));
    const double before = hypotheses_[static_cast<size_t>(row)].log_probability - log_sum;
    std::vector<Candidate> best;
    auto never = marks_.never.begin();
    for (int64_t token = 0; token < tokens; ++token) {
      if (never != marks_.never.end() && *never == token) {
        ++never;
        continue;
      }
      const Candidate one{before + z[token], static_cast<size_t>(row), static_cast<int32_t>(token)};
      if (best.size() == max_candidates && !more_likely(one, best.back())) continue;
      if (best.size() == max_candidates) best.pop_back();
      best.insert(std::upper_bound(best.begin(), best.end(), one, more_likely), one);
    }
    return best;
  }

  void finish(Sentence& sentence, Hypothesis hypothesis, int64_t length) {
    const double score =
        hypothesis.log_probability / std::pow((5 + static_cast<double>(length)) / 6, s_.length_penalty);
    if (sentence.finished++ == 0 || score > sentence.best_score)
      sentence.best = std::move(hypothesis), sentence.best_score = score;
  }
  // Extends the most likely hypotheses; returns true if the sentence is not done yet.
  bool extend(Sentence& sentence, const std::vector<std::vector<Candidate>>& by_row, std::vector<Hypothesis>& next,
              std::vector<int32_t>& parents) {
    std::vector<Candidate> candidates;
    for (const size_t row : sentence.rows) candidates.insert(candidates.end(), by_row[row].begin(), by_row[row].end());
    std::sort(candidates.begin(), candidates.end(), more_likely);
    const size_t first = next.size();
    int64_t rank = 0;
    for (const Candidate& c : candidates) {
      Hypothesis longer{hypotheses_[c.row].tokens, c.log_probability};
      const auto length = static_cast<int64_t>(longer.tokens.size()) + 1;
      if (c.token == marks_.end) {
        if (rank < s_.beam) finish(sentence, std::move(longer), length);
      } else {
        longer.tokens.push_back(c.token);
        next.push_back(std::move(longer));
        parents.push_back(static_cast<int32_t>(c.row));
      }
      if (++rank >= 2 * s_.beam || static_cast<int64_t>(next.size() - first) == s_.beam) break;
    }
    const bool full = next.size() > first && static_cast<int64_t>(next.back().tokens.size()) == sentence.limit;
    if (full && sentence.finished < s_.beam)
      for (size_t i = first; i < next.size(); ++i) finish(sentence, next[i], sentence.limit);
    if (sentence.finished >= s_.beam || next.size() == first || full) {
      next.resize(first), parents.resize(first);
      return false;
    }
    sentence.rows.resize(next.size() - first);
    std::iota(sentence.rows.begin(), sentence.rows.end(), first);
    return true;
  }
  void step() {
    const std::vector<std::vector<Candidate>> by_row = next_candidates();
    std::vector<Hypothesis> next;
    std::vector<int32_t> parents;
    std::vector<Sentence> left;
    for (Sentence& sentence : sentences_) {
      const bool unfinished = extend(sentence, by_row, next, parents);
      (unfinished ? left : done_).push_back(std::move(sentence));
    }
    sentences_ = std::move(left), hypotheses_ = std::move(next);
    if (!sentences_.empty()) reorder_cache(parents);
  }
  // Gives each row the cached state of its parent.
  void reorder_cache(const std::vector<int32_t>& parents) {
    std::vector<int32_t> same(lengths_.size());
    std::iota(same.begin(), same.end(), 0);
    if (parents == same) return;
    const Tensor rows = Tensor::from(Shape{static_cast<int64_t>(parents.size())}, parents).to(device_);
    for (auto& [path, entry] : cache_.entries)
      for (Tensor* const kept : {&entry.key, &entry.value, &entry.states})
        if (*kept) *kept = chosen_rows(*kept, rows);
    pass_.encoder_output = chosen_rows(pass_.encoder_output, rows);
    std::vector<int32_t> lengths;
    for (const int32_t parent : parents) lengths.push_back(lengths_[static_cast<size_t>(parent)]);
    lengths_ = std::move(lengths);
    pass_.encoder_lengths = Tensor::from(Shape{rows.size(0)}, lengths_).to(device_);
  }

  TranslationModel& model_;
  const SentenceMarks& marks_;
  const SearchSettings& s_;
  Device device_;
  nn::Cache cache_;
  nn::ForwardPass pass_;
  std::vector<Sentence> sentences_, done_;
  std::vector<Hypothesis> hypotheses_;  // by row
  std::vector<int32_t> lengths_;        // source length of each row
};

}  // namespace

std::vector<std::vector<int32_t>> translate(TranslationModel& model, std::span<const std::vector<int32_t>> sources,
                                            const SentenceMarks& marks, const SearchSettings& s) {
  check_at_least_one("translate", {{"beam", s.beam}, {"batch_size", s.batch_size}});
  check(s.max_tokens >= 0, "translate: max_tokens is ", s.max_tokens, "; it must be at least 0");
  check(std::isfinite(s.length_penalty), "translate: length_penalty is ", s.length_penalty, "; it must be finite");
  check(marks.vocabulary <= model.vocabulary(), "translate: the tokenizer has ", marks.vocabulary,
        " tokens, but the model has ", model.vocabulary(), "; use the tokenizer that the model was trained with");
  const NoGrad guard;
  std::vector<size_t> order(sources.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (const size_t i : order)
    check(static_cast<int64_t>(sources[i].size()) <= model.context(), "translate: sentence ", i + 1, " has ",
          sources[i].size(), " tokens with its end mark, more than the model's context of ", model.context(),
          "; split it into shorter ones");
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sources[a].size() < sources[b].size(); });
  std::vector<std::vector<int32_t>> translations(sources.size());
  const auto batch_size = static_cast<size_t>(s.batch_size);
  for (size_t begin = 0; begin < order.size(); begin += batch_size) {
    const size_t end = std::min(order.size(), begin + batch_size);
    Search(model, sources,
           {order.begin() + static_cast<std::ptrdiff_t>(begin), order.begin() + static_cast<std::ptrdiff_t>(end)},
           marks, s)
        .run(translations);
    if (s.progress) s.progress(static_cast<double>(end) / static_cast<double>(order.size()));
  }
  return translations;
}

std::vector<std::string> translate_to_text(TranslationModel& model, std::span<const std::vector<int32_t>> sources,
                                           const Tokenizer& tokenizer, const SearchSettings& settings) {
  std::vector<std::string> all;
  for (std::vector<int32_t>& tokens : translate(model, sources, sentence_marks(tokenizer), settings)) {
    std::erase_if(tokens, [&](int32_t token) { return token >= tokenizer.size(); });  // marks that the tokenizer lacks
    if (sources[all.size()].size() <= 1) tokens.clear();  // an end mark alone: an empty source
    all.push_back(tokenizer.decode(tokens));
  }
  return all;
}

}  // namespace orrery::models
