// The loss on the validation text.
#pragma once

#include <functional>
#include <optional>

#include "models/data/token_sequence.h"
#include "nn/base/module.h"

namespace orrery::models {

// Mean negative log-likelihood in nats of every token but the first, each predicted once, over consecutive windows of
// `context` tokens.  `stop` is asked between them; if it says true there is no result.
std::optional<double> evaluate(nn::Module& model, const TokenSequence& tokens, int64_t context, int64_t batch = 16,
                               const std::function<bool()>& stop = {});

}  // namespace orrery::models
