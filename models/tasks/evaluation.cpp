#include "models/tasks/evaluation.h"

#include <algorithm>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "engine/settings/spec.h"
#include "engine/types/check.h"
#include "engine/types/format.h"
#include "models/data/text.h"
#include "nn/losses/base/loss.h"

namespace orrery::models {

void MeanLoss::add(double mean, int64_t targets, int64_t correct) {
  const auto count = static_cast<double>(targets);
  of_batches_.push_back({mean * count, count, static_cast<double>(correct)});
}

void MeanLoss::add_others() {
  if (!ranks_) return;
  const int64_t ranks = ranks_->count(), most = (batches_ + ranks - 1) / ranks;
  of_batches_.resize(static_cast<size_t>(most));  // all ranks share equally many
  const std::vector<double> all = ranks_->share_numbers({of_batches_.data()->data(), of_batches_.size() * 3});
  of_batches_.resize(static_cast<size_t>(batches_));
  for (int64_t i = 0; i < batches_; ++i)
    std::copy_n(all.begin() + (i % ranks * most + i / ranks) * 3, 3, of_batches_[static_cast<size_t>(i)].begin());
}

double MeanLoss::sum_of(size_t number) const {
  double sum = 0;
  for (const Numbers& each : of_batches_) sum += each[number];
  return sum;
}

double MeanLoss::mean() const {
  check(targets() > 0, "validation: the held-out data have 0 targets; at least 1 is needed; take more held-out data");
  return sum_of(0) / sum_of(1);
}
double MeanLoss::accuracy() const { return sum_of(2) / sum_of(1); }

namespace {

// Returns the cross-entropy of a batch whose windows pass the model `at_once` at a time. All rows
// are summed together, as nn::cross_entropy sums them on the CPU: no bit depends on `at_once`.
double loss_in_parts(nn::Module& model, const Batch& batch, const Tensor& document_ids, int64_t at_once) {
  std::vector<Tensor> losses;
  for (int64_t begin = 0; begin < batch.inputs.size(0); begin += at_once) {
    const int64_t end = std::min(begin + at_once, batch.inputs.size(0));
    nn::ForwardPass pass;
    if (document_ids.defined()) pass.document_ids = document_ids.slice(begin, end);
    const Tensor logits = model(batch.inputs.slice(begin, end), pass);
    losses.push_back(nn::cross_entropy_of_rows(logits, batch.targets.slice(begin, end)));
  }
  const Tensor all = concatenate(losses, 0);
  const auto targets = static_cast<double>(std::max<int64_t>(1, count_targets(batch.targets)));
  return scale(sum(all.to(Dtype::f64)), 1 / targets).to(all.dtype()).item();
}

}  // namespace

std::optional<MeanLoss> evaluate(nn::Module& model, const TokenSequence& tokens, int64_t context, int64_t batch,
                                 const ValidationOptions& options, std::optional<int32_t> end_of_document,
                                 int64_t at_once, int64_t without_loss) {
  const NoGrad guard;
  const Device device = nn::device_of(model);
  MeanLoss loss(options.ranks);
  bool stopped = false;
  each_window(tokens, context, batch, [&](const Batch& window) {
    if (options.stop && options.stop()) return stopped = true, false;
    Batch scored = window;
    Tensor document_ids;
    if (end_of_document) document_ids = separate_documents(scored, *end_of_document).to(device);
    leave_out_first_targets(scored, without_loss);
    if (without_loss > 0 && count_targets(scored.targets) == 0) return true;
    if (!loss.evaluates_next()) return true;
    const auto of_whole_batch = [&] {
      nn::ForwardPass pass;
      pass.document_ids = document_ids;
      return nn::cross_entropy(model(scored.inputs.to(device), pass), scored.targets.to(device)).item();
    };
    const bool fits = device != Device::cpu || scored.inputs.size(0) <= at_once;
    loss.add(fits ? of_whole_batch() : loss_in_parts(model, scored, document_ids, at_once),
             count_targets(scored.targets));
    return true;
  });
  if (stopped) return std::nullopt;
  loss.add_others();
  return loss;
}

std::vector<std::string> overlap_warnings(const TrainingOverlap& overlap, int64_t all, const std::string& unit,
                                          bool own) {
  if (overlap.trained <= 0) return {};
  return {text(with_commas(overlap.trained), " of the ", with_commas(all), " ", unit, " of this validation, ",
               fixed(100.0 * static_cast<double>(overlap.trained) / static_cast<double>(all), 1),
               " %, are training data of the run", overlap.of_init_from ? " of init_from" : "",
               ", so its loss is not that of new data; use ",
               own || overlap.held_out == 0 ? "other data with --validation_data=PATH"
                                            : text("--validation_fraction=", print_number(overlap.held_out)))};
}

}  // namespace orrery::models
