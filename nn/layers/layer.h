// Layers that models construct in code, not by settings: each has a row in the catalogue and
// gradient cases of the family "layer".
#pragma once

#include "nn/base/entry.h"

namespace orrery::nn {

Registry<Info>& layers();

// Registers `info`, an Info.
#define REGISTER_LAYER(info) \
  [[maybe_unused]] static const bool registered_##info = (::orrery::nn::layers().add(info), true)

}  // namespace orrery::nn
