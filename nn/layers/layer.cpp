#include "nn/layers/layer.h"

#include "nn/base/gradient_case.h"

namespace orrery::nn {

Registry<Info>& layers() {
  static Registry<Info> all("layer");
  return all;
}

const bool family_of_layers = add_family("layer", [] { return layers().names(); });

}  // namespace orrery::nn
