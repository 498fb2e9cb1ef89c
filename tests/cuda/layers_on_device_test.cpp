// Every layer of nn on the device: what is registered there is found by its gradient case, so a new name is tested as
// soon as it exists.
#include <doctest/doctest.h>

#include <cmath>

#include "engine/autograd.h"
#include "engine/ops.h"
#include "nn/gradient_case.h"
#include "tests/cuda/kernel_testing.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using orrery::testing::random_tensor;

namespace {

struct Result {
  std::string what;
  std::vector<double> numbers;
};
// Output and gradients of the explicit function on a device, in f64.
std::vector<Result> differentiated(const GradientCase& test, Device device) {
  std::vector<Tensor> x;
  for (const GradientCase::Input& input : test.inputs) {
    x.push_back(input.value.to(device).clone());
    if (is_floating(input.value.dtype())) x.back().set_requires_grad();
  }
  const Tensor y = test.fast(x);
  check(y.device() == device, "the output is on the wrong device");
  backward(y, random_tensor(y.shape(), 7).to(device));
  std::vector<Result> results = {{"the output", y.to_vector()}};
  for (size_t i = 0; i < x.size(); ++i)
    if (x[i].grad()) results.push_back({"the gradient of " + test.inputs[i].name, x[i].grad().to_vector()});
  return results;
}

// Empty if the device gives the CPU's numbers, else what differs.
std::string disagreement(const GradientCase& test, double tolerance) {
  const std::vector<Result> cpu = differentiated(test, Device::cpu), cuda = differentiated(test, Device::cuda);
  if (cpu.size() != cuda.size()) return "not the same gradients arrive";
  for (size_t i = 0; i < cpu.size(); ++i) {
    double size = 1, worst = 0;
    for (const double a : cpu[i].numbers) size = std::max(size, std::fabs(a));
    for (size_t e = 0; e < cpu[i].numbers.size(); ++e) {
      const double d = std::fabs(cpu[i].numbers[e] - cuda[i].numbers[e]);
      worst = std::isnan(d) ? INFINITY : std::max(worst, d);
    }
    if (worst > tolerance * size) return cpu[i].what + " differs by " + std::to_string(worst / size * 1e12) + "e-12";
  }
  return "";
}

constexpr bool sanitized = address_sanitizer || thread_sanitizer;

}  // namespace

TEST_CASE("every registered layer gives the CPU's numbers on the device, forward and backward") {
  if (no_card()) return;
  const std::vector<RegisteredCase>& all = gradient_cases();
  REQUIRE(all.size() > 450);
  for (size_t i = 0; i < all.size(); i += sanitized ? 5 : 1) {
    INFO(all[i].family, " / ", all[i].name, " / ", all[i].title);
    std::string wrong;
    try {
      wrong = disagreement(make_case(all[i]), 1e-12);
    } catch (const std::runtime_error& error) {
      wrong = error.what();
    }
    CHECK(wrong == "");
  }
}
