// The loss on the validation text.
#pragma once

#include <functional>
#include <optional>

#include "models/data/token_sequence.h"
#include "nn/base/module.h"

namespace orrery::models {

// Mean negative log-likelihood in nats of every token but the first, each predicted once, over consecutive windows of
// `context` tokens.  `stop` is asked between them; if it says true there is no result.  With an `end_of_document` a
// token sees only its own document, and what follows such a token is not predicted.
std::optional<double> evaluate(nn::Module& model, const TokenSequence& tokens, int64_t context, int64_t batch = 16,
                               const std::function<bool()>& stop = {}, std::optional<int32_t> end_of_document = {});

}  // namespace orrery::models
