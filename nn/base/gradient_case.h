// Gradient cases: each registered name has small tensors, its operation and a reference to compare.
#pragma once

#include <functional>
#include <string>

#include "engine/checks/gradient_check.h"
#include "nn/base/module.h"

namespace orrery::nn {

// Returns a standard normal f64 tensor of a shape, a new one at each call.
using CaseTensors = std::function<Tensor(const Shape&)>;
using MakeGradientCase = std::function<GradientCase(const CaseTensors&)>;

struct RegisteredCase {
  std::string family, name;  // "normalization", "layer"; several cases may share a name
  std::string title;         // distinguishes them: "softmax(soft_cap=30), causal, T 17"; may be empty
  MakeGradientCase make;
};
const std::vector<RegisteredCase>& gradient_cases();  // sorted by family, then name
bool add_gradient_case(std::string family, std::string name, MakeGradientCase make, std::string title = "");
GradientCase make_case(const RegisteredCase& registered, uint64_t seed = 0);

// A gradient case of a whole module: its input and all parameters, from a random state within their
// bounds. Requested losses are part of the result; a missing loss is an error. If
// `compare_reference_mode`, the reference is the same module in reference mode (ReferenceMode).
struct ModuleCase {
  std::shared_ptr<Module> module;
  Shape input;
  std::function<void(ForwardPass&)> prepare = {};  // lengths, documents, encoder output, requested losses
  bool compare_reference_mode = false;
  int64_t finite_differences = 64;  // elements of each input, as in GradientCase
};
GradientCase module_case(const ModuleCase& settings, const CaseTensors& random);

// A family with its registered names, for lists, checks and tests.
struct Family {
  std::string name;
  std::vector<std::string> members;
};
std::vector<Family> families();  // in alphabetical order
// Adds a family, whose registered names `names` returns. Returns true, to initialize a static.
bool add_family(std::string name, std::vector<std::string> (*names)());

#define REGISTER_GRADIENT_CASE(family, name, make) \
  [[maybe_unused]] static const bool registered_case_##make = ::orrery::nn::add_gradient_case(family, name, make)

}  // namespace orrery::nn
