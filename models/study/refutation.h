// Parser of the conditions that refute a claim: "relu > softmax - 0.01", or with its own metric
// "accuracy: relu < softmax" (claim.h).
#pragma once

#include <span>
#include <string>

#include "models/study/claim.h"

namespace orrery::models {

// Throws for an invalid form, unknown variant or equality without margin. Errors begin with `what`.
Comparison parse_refutation(const std::string& what, const std::string& text, std::span<const std::string> variants);

// Returns a condition with the metric before its colon renamed. A variant keeps its name, which may
// be a metric's too.
template <class Rename>
std::string with_renamed_metric(const std::string& text, const Rename& rename) {
  const size_t colon = text.find(": ");
  return colon == std::string::npos ? text : rename(text.substr(0, colon)) + text.substr(colon);
}

}  // namespace orrery::models
