// Runs an example with replaced hook values, for ablation and patching.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/inspection/base/analysis.h"

namespace orrery::models {

// Changes the numbers of a hook value of this shape, in row-major order, in place.
using Edit = std::function<void(const Shape& shape, std::vector<double>& numbers)>;
// Returns the logits of `example` with the hook value `name` edited by `edit`. Numbers that `edit`
// leaves unchanged keep their bits. The logits are the model's own if no hook value has this name.
Tensor run_edited(const InspectedExample& example, const std::string& name, const Edit& edit);
// Returns the logits of `example` with the hook value replaced by `numbers`, a tensor with as many
// elements, of any shape.
Tensor run_replaced(const InspectedExample& example, const std::string& name, const Tensor& numbers);
// Converts `numbers` to the shape, dtype and device of `value`, so that a hook can return them.
Tensor like_hooked(const Tensor& value, const Tensor& numbers);

}  // namespace orrery::models
