// Losses on held-out data.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/data/token_sequence.h"
#include "models/tasks/base/task.h"
#include "nn/base/module.h"

namespace orrery::models {

// The mean of a loss over all targets of held-out data, which may be added in batches of any size.
class MeanLoss {
 public:
  // `mean`: nats per target.
  void add(double mean, int64_t targets) { total_ += mean * static_cast<double>(targets), targets_ += targets; }
  int64_t targets() const { return targets_; }
  double mean() const;  // throws without targets

 private:
  double total_ = 0;
  int64_t targets_ = 0;
};

// Returns the negative log-likelihood in nats of every token but the first, each predicted once,
// over consecutive windows of `context` tokens. No result if `stop` returns true between them. With
// `end_of_document`, documents are separate and the token after it is not a target. On the CPU, the
// windows of a batch pass the model `at_once` at a time, which bounds memory and changes no bit. The
// first `without_loss` tokens of each window predict nothing.
std::optional<MeanLoss> evaluate(nn::Module& model, const TokenSequence& tokens, int64_t context, int64_t batch = 16,
                                 const std::function<bool()>& stop = {}, std::optional<int32_t> end_of_document = {},
                                 int64_t at_once = 16, int64_t without_loss = 0);

// Returns a warning, or none if nothing of the validation is training data. `all`: the validation's
// units; `own`: it has validation_data, else it is a fraction of `data`.
std::vector<std::string> overlap_warnings(const TrainingOverlap& overlap, int64_t all, const std::string& unit,
                                          bool own);

}  // namespace orrery::models
