// How far back the heads of a model read, told beside a validation.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/autograd/hooks.h"
#include "models/tasks/base/task.h"
#include "nn/attentions/base/span.h"

namespace orrery::models {

// Watches all spans of a model from its making on.  In tokens, the ramp included: min(z + R, S); of a dynamic span the
// mean over all tokens that asked.
class SpanReport {
 public:
  explicit SpanReport(nn::Module& model);
  SpanReport(const SpanReport&) = delete;
  // figures: span_mean and span_max over all heads of all layers; details: of layer 2, span.2.mean and span.2.max over
  // its heads, and span.2.0, span.2.1, ... of each head.  Nothing if the model has no spans.
  void add_to(Validation& validation) const;

 private:
  struct Layer {
    const nn::Span* span;
    std::vector<double> sums = {};  // of each head's tokens
    double count = 0;
  };
  void see(Layer& layer, const Tensor& span) const;

  std::vector<Layer> layers_;
  std::optional<Hooks> hooks_;
};

}  // namespace orrery::models
