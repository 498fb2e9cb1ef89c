// An example run with other numbers in the place of what hooks show: how looks find causes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/inspection/base/look.h"

namespace orrery::models {

// Changes numbers of this shape in place.
using Change = std::function<void(const Shape& shape, std::vector<double>& numbers)>;
// The logits when the value of this name is changed so.  Numbers that are left as they are keep their bits.
Tensor run_changed(const Subject& subject, const std::string& name, const Change& change);
// The logits when these numbers stand in its place: as many as it has, of whatever shape.
Tensor run_with(const Subject& subject, const std::string& name, const Tensor& numbers);
// The numbers of this tensor as a hook may put them in the place of `value`: its shape, dtype and device.
Tensor in_place_of(const Tensor& value, const Tensor& numbers);

}  // namespace orrery::models
