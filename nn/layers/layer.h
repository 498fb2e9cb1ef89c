// Layers that models name in their code, not in their settings: a row each in the catalogue, and gradient cases of the
// family "layer".
#pragma once

#include "nn/base/entry.h"

namespace orrery::nn {

Registry<Info>& layers();

// `info` is an Info of the file.
#define REGISTER_LAYER(info) \
  [[maybe_unused]] static const bool registered_##info = (::orrery::nn::layers().add(info), true)

}  // namespace orrery::nn
