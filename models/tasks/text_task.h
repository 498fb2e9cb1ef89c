// The common part of tasks over one text: the text, its tokenizer and their description.
#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include "models/data/text.h"
#include "models/data/tokenizer.h"
#include "models/tasks/base/task.h"
#include "models/tasks/evaluation.h"

namespace orrery::models {

struct TextSettings {
  std::string data, validation_data, text_field = "text", tokenizer = "character";
  double validation_fraction = 0.1;
  int64_t validation_tokens = 0, training_loss_tokens = 16384;

  template <class V>
  void visit(V& v) {
    v.common("data", data,
             "text file or folder (UTF-8, JSONL, CSV, TSV); or tokens of `orrery prepare`, nanoGPT or llm.c");
    v("validation_data", validation_data,
      "validation text; of a prepared folder its val.bin; if not given, the end of `data` (validation_fraction)");
    v("text_field", text_field,
      "field of JSONL, or column of CSV and TSV, with the text; empty: read such files as plain text");
    v.common("tokenizer", tokenizer,
             "tokenizer by name (character, byte, ...) or path; character, byte, byte_pair(vocabulary=N), "
             "sentence_piece(vocabulary=N); if not given, that of prepared data",
             with_aliases({"token_ids|numbers"}));
    v("validation_fraction|held_out", validation_fraction,
      "fraction of the text, at its end, for validation, unless validation has its own file", between(0.001, 0.9));
    v("validation_tokens", validation_tokens,
      "held-out tokens per validation, from the beginning of the held-out text; 0: all", between(0, 1e15));
    v("training_loss_tokens", training_loss_tokens,
      "number of last training tokens whose loss a validation also reports, without dropout; 0: none",
      between(0, 1e15));
  }
};

// Throws, because only `own`, the tokenizer of the tokens (null: unknown), may be used with them.
[[noreturn]] void refuse_tokenizer(const std::string& data, const Tokenizer* own, const std::string& named);

class TextTask : public Task {
 public:
  // Reads the text; sets the model's vocabulary and the setting `tokenizer` of prepared data.
  TextTask(TextSettings& settings, AnySettings& model, const TaskOptions& options);

  BatchCounts counts(std::span<const Tensor> batch) const override {
    return {.targets = count_targets(batch[1]), .units = batch[0].numel()};
  }
  std::string kind() const override { return "text"; }
  std::string unit() const override { return "tokens"; }
  int64_t units_per_batch() const override { return batch_ * context_; }
  int64_t units_per_epoch() const override { return training().size(); }
  int64_t validation_units() const override { return validation().size(); }
  std::string data() const override { return data_; }
  std::string tokenizer() const override { return tokenizer_->save(); }
  std::vector<std::string> warnings() const override;
  Fingerprint fingerprint() const override { return fingerprint_; }
  std::vector<TrainedPart> trained_parts() const override { return trained_parts_; }
  std::map<std::string, Fingerprint> extra_inputs() const override { return extra_inputs_; }

  int64_t choices() const override { return vocabulary_; }
  int64_t validation_examples(int64_t max_tokens) const override;
  std::vector<Tensor> validation_example(int64_t number, int64_t max_tokens) const override;
  int64_t bytes() const override;
  int64_t sequence_length() const override { return context_; }
  std::vector<Tensor> dummy_batch(int64_t batch, int64_t length) const override;

 protected:
  const TokenSequence& training() const { return training_; }  // empty: a model is evaluated on other data
  const TokenSequence& validation() const { return validation_; }
  const TokenSequence& training_sample() const { return training_sample_; }  // for training_loss; may be empty
  // Adds bits_per_character = loss targets / (characters ln 2), where the characters are those of
  // the text that the targets were made of (models/data/characters.h). Adds nothing if they are
  // unknown or none. With an `end_of_document` the token after it is not predicted.
  void add_bits_per_character(Validation& found, const MeanLoss& loss,
                              std::optional<int32_t> end_of_document = {}) const;
  std::optional<int32_t> end_of_text() const { return tokenizer_->end_of_text(); }
  // Throws Error if `data`, a path, has tokens whose documents do not end with end_of_text().
  void check_end_of_documents(const char* command, const std::string& data) const;
  int64_t batch_size() const { return batch_; }
  int64_t context() const { return context_; }
  int64_t without_loss() const { return without_loss_; }  // first tokens that see later ones

 private:
  int64_t window(int64_t max_tokens) const { return std::min({max_tokens, context_, validation_units()}); }

  std::string data_;
  std::unique_ptr<Tokenizer> tokenizer_;
  bool own_;  // validation has its own data
  Fingerprint fingerprint_;
  std::vector<TrainedPart> trained_parts_;
  std::map<std::string, Fingerprint> extra_inputs_;
  std::vector<std::string> notes_;  // about files that are left out, and the validation split
  TokenSequence training_, validation_, training_sample_;
  int64_t batch_, context_, vocabulary_, without_loss_;
  mutable bool counted_ = false;
  mutable std::optional<int64_t> characters_;  // of the validation's targets, once counted_
};

}  // namespace orrery::models
