// Every registered name brings a gradient case: small tensors, the explicit operation, and its reference.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "engine/checks/gradient_check.h"
#include "nn/base/module.h"

namespace orrery::nn {

// Makes a standard normal f64 tensor of a shape, another one at each call.
using CaseTensors = std::function<Tensor(const Shape&)>;
using MakeGradientCase = std::function<GradientCase(const CaseTensors&)>;

struct RegisteredCase {
  std::string family, name;  // "normalization", "layer"; several cases may share a name
  std::string title;         // what tells them apart: "softmax(soft_cap=30), causal, T 17"; may be empty
  MakeGradientCase make;
};
const std::vector<RegisteredCase>& gradient_cases();  // by family, then name
bool add_gradient_case(std::string family, std::string name, MakeGradientCase make, std::string title = "");
GradientCase make_case(const RegisteredCase& registered, uint64_t seed = 0);

// A whole module as a case: its input and every parameter, from a random state within the parameters' bounds.  Losses
// that the pass wants are part of the result; it is an error if the module does not give them.  The reference is the
// same module while a SimpleOperations lives, if `against_simple` says so.
struct ModuleCase {
  std::shared_ptr<Module> module;
  Shape input;
  std::function<void(Pass&)> prepare = {};  // lengths, documents, memory, wanted losses
  bool against_simple = false;
  int64_t quotients = 64;  // as in GradientCase
};
GradientCase module_case(const ModuleCase& settings, const CaseTensors& random);

// Every family with its registered names: what lists, checks and tests walk.
struct Family {
  std::string name;
  std::vector<std::string> members;
};
std::vector<Family> families();  // in alphabetical order
// Each family says so itself, beside its registry; `names` lists what is registered.
bool add_family(std::string name, std::vector<std::string> (*names)());

#define REGISTER_GRADIENT_CASE(family, name, make) \
  [[maybe_unused]] static const bool registered_case_##make = ::orrery::nn::add_gradient_case(family, name, make)

}  // namespace orrery::nn
