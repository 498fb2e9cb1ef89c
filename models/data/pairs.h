// Sentences, or whole documents, in two languages: pairs of a source and its translation, the target.
//
// Batches hold pairs of similar lengths, as many as a budget of tokens allows.  In every epoch the pairs are sorted by
// the lengths of target and source, equal ones in an order drawn for this epoch, cut where the budget is reached, and
// the batches come in an order drawn for this epoch.  The lengths alone decide where is cut, so every epoch has as many
// batches, and any batch can be asked for by its number.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/system/hash.h"
#include "engine/math/random.h"
#include "engine/tensor/tensor.h"
#include "models/data/tokenizer.h"

namespace orrery::models {

using TextPair = std::pair<std::string, std::string>;  // source and target

// Where pairs stand: two files, line for line, or one of columns with tabs between them.
struct PairFiles {
  std::string source, target = {};               // no target: the first is a file of columns
  int64_t source_column = 1, target_column = 2;  // from 1
  // Lines one after the other with the same text in this column are one document, joined by spaces; 0: each line is
  // a pair.
  int64_t document_column = 0;
  int64_t document_lines = 0;  // at most so many of a document's lines are one pair, the next ones the next; 0: all
};

// Errors: a file that cannot be read or is empty, files of different numbers of lines, a line without a column,
// document_lines without a document_column.
std::vector<TextPair> read_pairs(const PairFiles& files);
Fingerprint fingerprint_of(std::span<const TextPair> pairs);
std::string text_of(std::span<const TextPair> pairs);  // all sources, then all targets, a line each

// Tokens that stand for the beginning and the end: the tokenizer's, or two beyond its own.
struct SentenceMarks {
  int32_t begin, end;
  int64_t vocabulary;  // tokens with them
  // Numbers below that no translation holds: those in a gap of the tokenizer's, and tokens with a line break in their
  // text, because a sentence is a line.
  std::vector<int32_t> never = {};
};
SentenceMarks sentence_marks(const Tokenizer& tokenizer);

struct Pair {
  std::vector<int32_t> source, target;  // both with the end, without the beginning
};
std::vector<Pair> encode(std::span<const TextPair> pairs, const Tokenizer& tokenizer, const SentenceMarks& marks);

// Rows are padded at their ends, with token 0 where tokens are read and -1 where they are to be predicted.
struct PairBatch {
  Tensor sources, source_lengths;          // (B, Ts), (B), i32
  Tensor inputs, targets, target_lengths;  // (B, Tt), (B, Tt), (B), i32; inputs: the beginning, then the targets
};
PairBatch batch_of(std::span<const Pair* const> pairs, const SentenceMarks& marks);
// Rows of any lengths and what pads them: (B, longest) and (B).
std::pair<Tensor, Tensor> padded(std::span<const std::vector<int32_t>> rows, int32_t padding = 0);

class PairBatches {
 public:
  // The pairs must outlive it.  A batch has at most `most_tokens` of sources and targets together, or one pair.
  PairBatches(std::span<const Pair> pairs, const SentenceMarks& marks, int64_t most_tokens, uint64_t seed);
  int64_t of_epoch() const { return static_cast<int64_t>(begins_.size()) - 1; }
  PairBatch at(int64_t number) const { return batch_of(pairs_at(number), marks_); }  // from 0 through all epochs
  int64_t all_tokens() const { return all_tokens_; }  // of an epoch, sources and targets
  // The most rows times the longest row of any batch: what a batch needs at most.
  int64_t most_places() const { return most_places_; }
  int64_t longest() const { return longest_; }  // tokens of a row

 private:
  std::vector<const Pair*> pairs_at(int64_t number) const;
  void order(int64_t epoch) const;

  std::span<const Pair> pairs_;
  SentenceMarks marks_;
  RandomKey key_;
  std::vector<size_t> begins_;  // of the batches among the sorted pairs, and the end
  int64_t all_tokens_ = 0, most_places_ = 0, longest_ = 0;
  // The order of one epoch, the last that was asked for.
  mutable int64_t ordered_ = -1;
  mutable std::vector<size_t> sorted_, turn_;
};

}  // namespace orrery::models
