// Diagnosis of a failed check of derivatives: the bounds that are exceeded, and likely causes.
#pragma once

#include <cmath>
#include <string>
#include <vector>

namespace orrery::program {

struct CheckedInput {  // an input or parameter: a row of gradcheck's table
  std::string name;
  double reference_error = NAN;  // NaN: there is no reference
  double difference_error = 0;   // against finite differences
  double factor = NAN;           // the derivative is this multiple of its finite differences; NaN: no common factor
};

struct GradientBounds {
  std::string reference;  // name of the independent derivative: "reference", "dual numbers"
  double reference_error, difference_error;
};

// Returns a line for each bound that is exceeded, then the likely causes; nothing if none is.
// `value_error` is that of the results of forward.
std::vector<std::string> diagnose(const std::vector<CheckedInput>& inputs, const GradientBounds& bounds,
                                  double value_error = 0);

}  // namespace orrery::program
