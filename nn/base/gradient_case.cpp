#include "nn/base/gradient_case.h"

#include <algorithm>
#include <tuple>

namespace orrery::nn {
namespace {

std::vector<RegisteredCase>& cases() {
  static std::vector<RegisteredCase> all;
  return all;
}

std::map<std::string, std::vector<std::string> (*)()>& members() {
  static std::map<std::string, std::vector<std::string> (*)()> all;
  return all;
}

}  // namespace

bool add_gradient_case(std::string family, std::string name, MakeGradientCase make, std::string title) {
  cases().push_back({std::move(family), std::move(name), std::move(title), std::move(make)});
  return true;
}
const std::vector<RegisteredCase>& gradient_cases() {
  std::stable_sort(cases().begin(), cases().end(), [](const auto& a, const auto& b) {
    return std::tie(a.family, a.name) < std::tie(b.family, b.name);
  });
  return cases();
}
GradientCase make_case(const RegisteredCase& registered, uint64_t seed) {
  uint64_t count = 0;
  const RandomKey rng = RandomKey{seed, 0}.derive(registered.family).derive(registered.name).derive(registered.title);
  return registered.make([&](const Shape& shape) {
    const Tensor x = Tensor::empty(shape, Dtype::f64, Device::cpu);
    fill(x, normal(1), rng.derive(count++));
    return x;
  });
}

bool add_family(std::string name, std::vector<std::string> (*names)()) {
  members().emplace(std::move(name), names);
  return true;
}
std::vector<Family> families() {
  std::vector<Family> all;
  for (const auto& [name, names] : members()) all.push_back({name, names()});
  return all;
}

}  // namespace orrery::nn
