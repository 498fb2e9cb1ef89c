// Runs an example with edited hook values, for ablation and patching.
#pragma once

#include <string>
#include <vector>

#include "models/inspection/base/analysis.h"
#include "models/inspection/base/edits.h"

namespace orrery::models {

// Returns the logits of `example` with these edits. They are the model's own if no value has such a name.
Tensor run_edited(const InspectedExample& example, std::vector<ValueEdit> edits);
// Returns the logits of `example` with the hook value replaced by `numbers`, a tensor with as many
// elements, of any shape.
inline Tensor run_replaced(const InspectedExample& example, const std::string& name, const Tensor& numbers) {
  return run_edited(example, {{.hook = name, .operation = ValueEdit::Operation::set_to_other, .other = numbers}});
}

}  // namespace orrery::models
