#include "models/tasks/evaluation.h"

#include <algorithm>

#include "engine/autograd/autograd.h"
#include "engine/base/check.h"
#include "models/data/text.h"
#include "nn/losses/base/loss.h"

namespace orrery::models {

std::optional<double> evaluate(nn::Module& model, const TokenSequence& tokens, int64_t context, int64_t batch,
                               const std::function<bool()>& stop) {
  const NoGrad guard;
  const Device device = nn::device_of(model);
  double total = 0;
  int64_t count = 0;
  bool stopped = false;
  each_window(tokens, context, batch, [&](const Batch& window) {
    if (stop && stop()) return stopped = true, false;
    nn::Pass pass;
    const int64_t here = window.targets.numel();
    total += nn::cross_entropy(model(window.inputs.to(device), pass), window.targets.to(device)).item() *
             static_cast<double>(here);
    count += here;
    return true;
  });
  if (stopped) return std::nullopt;
  return total / static_cast<double>(std::max<int64_t>(1, count));
}

}  // namespace orrery::models
