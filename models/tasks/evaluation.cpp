#include "models/tasks/evaluation.h"

#include <algorithm>

#include "engine/autograd/autograd.h"
#include "engine/base/check.h"
#include "models/data/text.h"
#include "nn/losses/base/loss.h"

namespace orrery::models {

std::optional<double> evaluate(nn::Module& model, const TokenSequence& tokens, int64_t context, int64_t batch,
                               const std::function<bool()>& stop, std::optional<int32_t> end_of_document) {
  const NoGrad guard;
  const Device device = nn::device_of(model);
  double total = 0;
  int64_t count = 0;
  bool stopped = false;
  each_window(tokens, context, batch, [&](const Batch& window) {
    if (stop && stop()) return stopped = true, false;
    nn::Pass pass;
    Batch judged = window;
    if (end_of_document) pass.document_ids = separate_documents(judged, *end_of_document).to(device);
    const int32_t* const first = judged.targets.data<int32_t>();
    const auto here = std::count_if(first, first + judged.targets.numel(), [](int32_t target) { return target >= 0; });
    if (here == 0) return true;
    total += nn::cross_entropy(model(judged.inputs.to(device), pass), judged.targets.to(device)).item() *
             static_cast<double>(here);
    count += here;
    return true;
  });
  if (stopped) return std::nullopt;
  return total / static_cast<double>(std::max<int64_t>(1, count));
}

}  // namespace orrery::models
