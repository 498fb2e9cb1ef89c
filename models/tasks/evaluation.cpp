#include "models/tasks/evaluation.h"

#include "engine/autograd/autograd.h"
#include "engine/types/check.h"
#include "models/data/text.h"
#include "models/tasks/base/task.h"
#include "nn/losses/base/loss.h"

namespace orrery::models {

double MeanLoss::mean() const {
  check(targets_ > 0, "validation: the held-out data have 0 targets; at least 1 is needed; take more held-out data");
  return total_ / static_cast<double>(targets_);
}

std::optional<MeanLoss> evaluate(nn::Module& model, const TokenSequence& tokens, int64_t context, int64_t batch,
                                 const std::function<bool()>& stop, std::optional<int32_t> end_of_document) {
  const NoGrad guard;
  const Device device = nn::device_of(model);
  MeanLoss loss;
  bool stopped = false;
  each_window(tokens, context, batch, [&](const Batch& window) {
    if (stop && stop()) return stopped = true, false;
    nn::Pass pass;
    Batch judged = window;
    if (end_of_document) pass.document_ids = separate_documents(judged, *end_of_document).to(device);
    loss.add(nn::cross_entropy(model(judged.inputs.to(device), pass), judged.targets.to(device)).item(),
             count_targets(judged.targets));
    return true;
  });
  if (stopped) return std::nullopt;
  return loss;
}

}  // namespace orrery::models
