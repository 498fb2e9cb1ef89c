#include "models/tasks/evaluation.h"

#include "engine/autograd/autograd.h"
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

std::optional<MeanLoss> evaluate(nn::Module& model, const TokenSequence& tokens, int64_t context, int64_t batch,
                                 const std::function<bool()>& stop, std::optional<int32_t> end_of_document) {
  const NoGrad guard;
  const Device device = nn::device_of(model);
  MeanLoss loss;
  bool stopped = false;
  each_window(tokens, context, batch, [&](const Batch& window) {
    if (stop && stop()) return stopped = true, false;
    nn::ForwardPass pass;
    Batch scored = window;
    if (end_of_document) pass.document_ids = separate_documents(scored, *end_of_document).to(device);
    loss.add(nn::cross_entropy(model(scored.inputs.to(device), pass), scored.targets.to(device)).item(),
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
