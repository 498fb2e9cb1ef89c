// Runs an example with replaced hook values, for ablation and patching.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/inspection/base/analysis.h"

namespace orrery::models {

// Changes numbers of this shape in place.
using Edit = std::function<void(const Shape& shape, std::vector<double>& numbers)>;
// Returns the logits if `edit` edits the hook value `name`. Unchanged numbers keep their bits.
Tensor run_edited(const InspectedExample& example, const std::string& name, const Edit& edit);
// Returns the logits if `numbers` replace the hook value; they have its size and any shape.
Tensor run_replaced(const InspectedExample& example, const std::string& name, const Tensor& numbers);
// Converts `numbers` to the shape, dtype and device of `value`, so that a hook can return them.
Tensor like_hooked(const Tensor& value, const Tensor& numbers);

}  // namespace orrery::models
