// Independent checks of a derivative: the explicit backward is compared with autograd through a
// reference of simple operations and with finite differences. For `orrery gradcheck` and the tests.
#pragma once

#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/tensor/tensor.h"

namespace orrery {

// A differentiable function and its slow reference. Inputs are f64 leaves, or i32 without gradient.
struct GradientCase {
  using Function = std::function<Tensor(const std::vector<Tensor>&)>;
  struct Input {
    std::string name;
    Tensor value;
  };
  std::vector<Input> inputs;
  Function fast;
  Function reference;               // empty: only finite differences are checked
  int64_t finite_differences = 64;  // elements of each input, spread evenly, that are compared with finite differences
};

struct GradientRow {  // result for one input
  std::string input;
  int64_t elements = 0;
  double reference_error = 0;  // largest |explicit - reference| / max(1, largest |explicit|); NaN counts as infinite
  double finite_difference_error = 0;  // likewise against finite differences, for `finite_differences` elements
  int64_t worst_element = 0;           // element with the largest error against finite differences
  // factor: common_factor of all checked elements
  double worst_explicit = 0, worst_finite_difference = 0, factor = NAN;
};

// Returns f if x = f y in all elements (two or more), to within 10^-6 of the largest; else NaN.
double common_factor(std::span<const double> x, std::span<const double> y);

struct GradientReport {
  double value_difference = 0;  // largest |fast - reference| of the outputs
  std::vector<GradientRow> rows;
  bool passed = false;
  int64_t comparisons = 0;
};

inline constexpr double reference_tolerance = 1e-12, finite_difference_tolerance = 1e-7;

// Differentiates sum <y, w> with fixed pseudo-random w, so that every output element counts. The
// explicit derivative is computed on `device`, the independent checks on the CPU.
GradientReport check_gradients(const GradientCase& test, Device device = Device::cpu);

}  // namespace orrery
