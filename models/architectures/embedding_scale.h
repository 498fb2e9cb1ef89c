// The factor of embeddings, from its setting: none, a number, sqrt_width, learned (from
// sqrt(width)) or learned(a number).
#pragma once

#include <string_view>

#include "engine/settings/spec.h"

namespace orrery::models {

constexpr const char* embedding_scale_help =
    "factor of the embedding: none, a number, sqrt_width, learned (from sqrt(width)) or learned(NUMBER)";

// Returns the factor for a model of this width; errors begin with `owner`, the model's name.
LearnableNumber embedding_scale(const Spec& spec, int64_t width, std::string_view owner);

}  // namespace orrery::models
