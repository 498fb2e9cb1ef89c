// Checks over the registries, which cover every new file automatically.
#include <doctest/doctest.h>

#include <set>

#include "nn/base/gradient_case.h"
#include "nn/formulas/activation.h"
#include "tests/support/sanitizers.h"

using namespace orrery;
using namespace orrery::nn;

namespace {

// Three seeds per case. Sanitizers take ten times as long, so they run one seed and one finite
// difference per input.
constexpr bool sanitized = address_sanitizer || thread_sanitizer;

}  // namespace

TEST_CASE("every registered case: explicit backward, reference and finite differences agree") {
  for (const RegisteredCase& registered : gradient_cases())
    for (uint64_t seed = 0; seed < (sanitized ? 1 : 3); ++seed) {
      INFO(registered.family, " ", registered.name, " ", registered.title, ", seed ", seed);
      GradientCase test = make_case(registered, seed);
      if (sanitized) test.finite_differences = 1;
      const GradientReport report = check_gradients(test);
      CHECK(report.value_difference <= reference_tolerance);
      for (const GradientRow& row : report.rows) {
        INFO("input ", row.input, ", worst element ", row.worst_element, ": ", row.worst_explicit, " instead of ",
             row.worst_finite_difference);
        CHECK(row.elements > 0);
        CHECK(row.reference_error <= reference_tolerance);
        CHECK(row.finite_difference_error <= finite_difference_tolerance);
      }
      CHECK(report.passed);
    }
}

TEST_CASE("every name of a differentiable family has a case, and every case a name") {
  std::set<std::pair<std::string, std::string>> with_case, known;
  for (const RegisteredCase& registered : gradient_cases()) with_case.emplace(registered.family, registered.name);
  for (const Family& family : families())
    for (const std::string& name : family.members) {
      known.emplace(family.name, name);
      // activation_test.cpp checks activations. Masks, optimizers, schedules and the problems of models
      // (present if linked with the tests) have no gradient.
      const std::set<std::string> without = {"activation", "mask", "optimizer", "schedule", "problem"};
      if (without.contains(family.name)) continue;
      INFO(family.name, " ", name);
      CHECK(with_case.contains({family.name, name}));
    }
  for (const auto& one : with_case) {
    INFO(one.first, " ", one.second);
    CHECK(known.contains(one));
  }
}
