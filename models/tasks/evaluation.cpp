#include "models/tasks/evaluation.h"

#include "engine/autograd/autograd.h"
#include "engine/settings/spec.h"
#include "engine/types/check.h"
#include "engine/types/wording.h"
#include "models/data/text.h"
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

std::vector<std::string> warnings_of(const TrainingShare& share, int64_t all, const std::string& unit, bool own) {
  if (share.trained <= 0) return {};
  return {text(grouped(share.trained), " of the ", grouped(all), " ", unit, " of this validation, ",
               fixed(100.0 * static_cast<double>(share.trained) / static_cast<double>(all), 1),
               " %, are training data of the run", share.of_init_from ? " of init_from" : "",
               ", so its loss is not that of new data; use ",
               own || share.held_out == 0 ? "other data with --validation_data=PATH"
                                          : text("--validation_fraction=", print_number(share.held_out)))};
}

}  // namespace orrery::models
