// Every registered name brings a gradient case: small tensors, the explicit operation, and its reference.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "engine/gradient_check.h"

namespace orrery::nn {

// Makes a standard normal f64 tensor of a shape, another one at each call.
using CaseTensors = std::function<Tensor(const Shape&)>;
using MakeGradientCase = GradientCase (*)(const CaseTensors&);

struct RegisteredCase {
  std::string family, name;  // "normalization", "layer"; several cases may share a name
  MakeGradientCase make;
};
const std::vector<RegisteredCase>& gradient_cases();  // by family, then name
bool add_gradient_case(std::string family, std::string name, MakeGradientCase make);
GradientCase make_case(const RegisteredCase& registered, uint64_t seed = 0);

// Every family with its registered names: what lists, checks and tests walk.
struct Family {
  std::string name;
  std::vector<std::string> members;
};
std::vector<Family> families();

#define REGISTER_GRADIENT_CASE(family, name, make) \
  [[maybe_unused]] static const bool registered_case_##make = ::orrery::nn::add_gradient_case(family, name, make)

}  // namespace orrery::nn
