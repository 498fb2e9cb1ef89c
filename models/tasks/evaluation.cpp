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

double MeanLoss::mean() const {
  check(targets_ > 0, "validation: the held-out data have 0 targets; at least 1 is needed; take more held-out data");
  return total_ / static_cast<double>(targets_);
}

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
                                 const std::function<bool()>& stop, std::optional<int32_t> end_of_document,
                                 int64_t at_once, int64_t without_loss) {
  const NoGrad guard;
  const Device device = nn::device_of(model);
  MeanLoss loss;
  bool stopped = false;
  each_window(tokens, context, batch, [&](const Batch& window) {
    if (stop && stop()) return stopped = true, false;
    Batch scored = window;
    Tensor document_ids;
    if (end_of_document) document_ids = separate_documents(scored, *end_of_document).to(device);
    leave_out_first_targets(scored, without_loss);
    if (without_loss > 0 && count_targets(scored.targets) == 0) return true;
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
