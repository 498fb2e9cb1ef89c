// Witnesses for a derivative: the explicit backward against autograd through a reference of simple operations, and
// against difference quotients.  What `orrery gradcheck` prints and what the tests judge.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/tensor/tensor.h"

namespace orrery {

// One differentiable function with its slow double.  Inputs are f64 leaves; those of dtype i32 are not differentiated.
struct GradientCase {
  using Function = std::function<Tensor(const std::vector<Tensor>&)>;
  struct Input {
    std::string name;
    Tensor value;
  };
  std::vector<Input> inputs;
  Function fast;
  Function reference;      // empty if there is none: then the quotient alone judges
  int64_t quotients = 64;  // so many elements of each input, spread evenly, are held against a difference quotient
};

struct GradientRow {  // of one input
  std::string input;
  int64_t elements = 0;
  double against_reference = 0;  // largest |explicit - reference| / max(1, largest |explicit|); NaN counts as infinite
  double against_quotient = 0;   // the same against the difference quotient of so many elements
  int64_t worst_element = 0;     // by the quotient
  double worst_explicit = 0, worst_quotient = 0;
};

struct GradientReport {
  double value_difference = 0;  // of the outputs: fast against reference
  std::vector<GradientRow> rows;
  bool passed = false;
  int64_t comparisons = 0;
};

inline constexpr double reference_tolerance = 1e-12, quotient_tolerance = 1e-7;

// The scalar that is differentiated is sum <y, w> with fixed pseudo-random w, so that every output element counts.  The
// explicit derivative is that of `device`; the witnesses are computed on the CPU.
GradientReport check_gradients(const GradientCase& test, Device device = Device::cpu);

}  // namespace orrery
