#include "nn/losses/base/loss.h"

#include "nn/base/gradient_case.h"

namespace orrery::nn {

Registry<LossInfo>& losses() {
  static Registry<LossInfo> all("loss");
  return all;
}

const bool family_of_losses = add_family("loss", [] { return losses().names(); });

}  // namespace orrery::nn
