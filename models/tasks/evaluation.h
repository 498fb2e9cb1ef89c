// Losses on held-out data.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "models/data/token_sequence.h"
#include "models/tasks/base/task.h"
#include "nn/base/module.h"

namespace orrery::models {

// The mean of a loss over all targets of held-out data, which may be added in batches of any size.
// Ranks share the batches: batch i is evaluated by rank i mod N. Then all ranks add the numbers of
// all batches in their order, as one process does.
class MeanLoss {
 public:
  explicit MeanLoss(Ranks* ranks = nullptr) : ranks_(ranks) {}
  bool evaluates_next() { return !ranks_ || batches_++ % ranks_->count() == ranks_->rank(); }
  // `mean`: nats per target; correct: targets that were predicted.
  void add(double mean, int64_t targets, int64_t correct = 0);
  void add_others();  // the batches of the other ranks; called by all of them together, after the last batch
  int64_t targets() const { return static_cast<int64_t>(sum_of(1)); }
  double mean() const;      // throws without targets
  double accuracy() const;  // the fraction of targets that were predicted

 private:
  using Numbers = std::array<double, 3>;  // of a batch: loss, targets, correct ones
  double sum_of(size_t number) const;

  Ranks* ranks_;
  int64_t batches_ = 0;
  std::vector<Numbers> of_batches_;
};

// Returns the negative log-likelihood in nats of every token but the first, each predicted once,
// over consecutive windows of `context` tokens. No result if it is stopped between them. With
// `end_of_document`, documents are separate and the token after it is not a target. On the CPU, the
// windows of a batch pass the model `at_once` at a time, which bounds memory and changes no bit. The
// first `without_loss` tokens of each window predict nothing.
std::optional<MeanLoss> evaluate(nn::Module& model, const TokenSequence& tokens, int64_t context, int64_t batch = 16,
                                 const ValidationOptions& options = {}, std::optional<int32_t> end_of_document = {},
                                 int64_t at_once = 16, int64_t without_loss = 0);

// Returns a warning, or none if nothing of the validation is training data. `all`: the validation's
// units; `own`: it has validation_data, else it is a fraction of `data`.
std::vector<std::string> overlap_warnings(const TrainingOverlap& overlap, int64_t all, const std::string& unit,
                                          bool own);

}  // namespace orrery::models
