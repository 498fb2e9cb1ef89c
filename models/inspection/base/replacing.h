// Runs an example with replaced hook values, for ablation and patching.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/inspection/base/look.h"

namespace orrery::models {

// Changes numbers of this shape in place.
using Change = std::function<void(const Shape& shape, std::vector<double>& numbers)>;
// Returns the logits if `change` edits the hook value `name`. Unchanged numbers keep their bits.
Tensor run_changed(const Subject& subject, const std::string& name, const Change& change);
// Returns the logits if `numbers` replace the hook value; they have its size and any shape.
Tensor run_with(const Subject& subject, const std::string& name, const Tensor& numbers);
// Converts `numbers` to the shape, dtype and device of `value`, so that a hook can return them.
Tensor in_place_of(const Tensor& value, const Tensor& numbers);

}  // namespace orrery::models
