// Sentences or whole documents in two languages: pairs of a source and its translation, the target.
//
// Batches hold pairs of similar lengths, as many as a budget of tokens allows. In every epoch the
// pairs are sorted by target and source length; ties are in an order drawn for the epoch. They are
// cut where the budget is reached; the order of the batches is drawn for the epoch. Cuts depend on
// lengths only, so all epochs have equally many batches, each available by its number.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/math/random.h"
#include "engine/system/hash.h"
#include "engine/tensor/tensor.h"
#include "models/data/pair_format.h"
#include "models/data/tokenizer.h"

namespace orrery::models {

Fingerprint fingerprint_of(std::span<const TextPair> pairs);  // of their texts, in order
std::string text_of(std::span<const TextPair> pairs);  // all sources, then all targets, a line each

// Tokens for the beginning and the end of a sentence: the tokenizer's, or new ones after its own.
struct SentenceMarks {
  int32_t begin, end;
  int64_t vocabulary;  // tokens including these
  // Ids below `vocabulary` that no translation contains: gaps of the tokenizer, and tokens with
  // a line break, because a sentence is a line.
  std::vector<int32_t> never = {};
};
SentenceMarks sentence_marks(const Tokenizer& tokenizer);

struct Pair {
  std::vector<int32_t> source, target;  // both with the end token, without the begin token
};
// Encodes the pairs. Throws Error for text that the tokenizer rejects.
std::vector<Pair> encode(std::span<const TextPair> pairs, const Tokenizer& tokenizer, const SentenceMarks& marks);

// Rows are padded at their ends: sources and inputs with token 0, targets with -1.
struct PairBatch {
  Tensor sources, source_lengths;  // (B, Ts), (B), i32
  // (B, Tt), (B, Tt), (B), i32; inputs: the begin token, then the targets without their last
  Tensor inputs, targets, target_lengths;
};
PairBatch batch_of(std::span<const Pair* const> pairs, const SentenceMarks& marks);
// Returns the rows, padded to the longest, (B, longest), and their lengths, (B).
std::pair<Tensor, Tensor> padded(std::span<const std::vector<int32_t>> rows, int32_t padding = 0);

class PairBatches {
 public:
  // `pairs` must outlive this. A batch is one pair, or pairs whose sources and targets have at most
  // `max_tokens` tokens in all, without padding.
  PairBatches(std::span<const Pair> pairs, const SentenceMarks& marks, int64_t max_tokens, uint64_t seed);
  int64_t batches_per_epoch() const { return static_cast<int64_t>(begins_.size()) - 1; }
  PairBatch at(int64_t number) const { return batch_of(pairs_at(number), marks_); }  // from 0, over all epochs
  int64_t all_tokens() const { return all_tokens_; }                                 // of an epoch: sources and targets
  // Returns the largest B max(Ts, Tt) of any batch: its positions, padding included, on the longer
  // side.
  int64_t max_positions() const { return max_positions_; }
  int64_t longest() const { return longest_; }  // tokens of the longest source or target

 private:
  std::vector<const Pair*> pairs_at(int64_t number) const;
  void order(int64_t epoch) const;

  std::span<const Pair> pairs_;
  SentenceMarks marks_;
  RandomKey rng_;
  std::vector<size_t> begins_;  // first sorted pair of each batch, and the end
  int64_t all_tokens_ = 0, max_positions_ = 0, longest_ = 0;
  // The order of the epoch used last.
  mutable int64_t ordered_ = -1;
  mutable std::vector<size_t> sorted_, batch_order_;
};

}  // namespace orrery::models
