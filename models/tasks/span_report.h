// Attention spans of a model's heads, reported with a validation.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/autograd/hooks.h"
#include "models/tasks/base/task.h"
#include "nn/attentions/base/span.h"

namespace orrery::models {

// A recorder of a model's spans from its construction on. Spans are in tokens, ramp included:
// min(z + R, S); a dynamic span is averaged over all query tokens.
class SpanReport {
 public:
  explicit SpanReport(nn::Module& model);
  SpanReport(const SpanReport&) = delete;
  // Adds metrics span_mean and span_max over all heads and layers, and details, for example of
  // layer 2: span.2.mean, span.2.max over heads and span.2.0, ... per head. Nothing without spans.
  void add_to(Validation& validation) const;
  // Returns the options for a validation whose spans are recorded: ranks do not share it, because the
  // sum over all tokens is one chain.
  ValidationOptions whole(ValidationOptions options) const {
    if (hooks_) options.ranks = nullptr;
    return options;
  }

 private:
  struct Layer {
    const nn::Span* span;
    std::vector<double> sums = {};  // tokens of each head
    double count = 0;
  };
  void record(Layer& layer, const Tensor& span) const;

  std::vector<Layer> layers_;
  std::optional<Hooks> hooks_;
};

}  // namespace orrery::models
