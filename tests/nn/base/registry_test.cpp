// Walks the registries: what a new file gets checked for without its author doing anything.
#include <doctest/doctest.h>

#include <set>

#include "nn/base/gradient_case.h"
#include "nn/formulas/activation.h"

using namespace orrery;
using namespace orrery::nn;

namespace {

// Three random states of each case.  A sanitizer, which watches memory and threads and takes ten times as long, runs
// one, and one difference quotient for each input.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

}  // namespace

TEST_CASE("every registered case: explicit backward, reference and difference quotient agree") {
  for (const RegisteredCase& registered : gradient_cases())
    for (uint64_t seed = 0; seed < (sanitized ? 1 : 3); ++seed) {
      INFO(registered.family, " ", registered.name, " ", registered.title, ", seed ", seed);
      GradientCase test = make_case(registered, seed);
      if (sanitized) test.quotients = 1;
      const GradientReport report = check_gradients(test);
      CHECK(report.value_difference <= reference_tolerance);
      for (const GradientRow& row : report.rows) {
        INFO("input ", row.input, ", worst element ", row.worst_element, ": ", row.worst_explicit, " against ",
             row.worst_quotient);
        CHECK(row.elements > 0);
        CHECK(row.against_reference <= reference_tolerance);
        CHECK(row.against_quotient <= quotient_tolerance);
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
      // Activations are checked one by one in activation_test.cpp; optimizers, schedules and the problems of models,
      // which are there if the tests are linked with them, have no gradient.
      const std::set<std::string> without = {"activation", "optimizer", "schedule", "problem"};
      if (without.contains(family.name)) continue;
      INFO(family.name, " ", name);
      CHECK(with_case.contains({family.name, name}));
    }
  for (const auto& one : with_case) {
    INFO(one.first, " ", one.second);
    CHECK(known.contains(one));
  }
}
