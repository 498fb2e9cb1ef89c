// Walks the registries: what a new file gets checked for without its author doing anything.
#include <doctest/doctest.h>

#include <set>

#include "nn/activation.h"
#include "nn/gradient_case.h"

using namespace orrery;
using namespace orrery::nn;

namespace {

// Random states of each case; one under a sanitizer, which watches memory and threads and takes ten times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t states = 1;
#else
constexpr uint64_t states = 3;
#endif

}  // namespace

TEST_CASE("every registered case: explicit backward, reference and difference quotient agree") {
  for (const RegisteredCase& registered : gradient_cases())
    for (uint64_t seed = 0; seed < states; ++seed) {
      INFO(registered.family, " ", registered.name, " ", registered.title, ", seed ", seed);
      const GradientReport report = check_gradients(make_case(registered, seed));
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
      // Activations are checked one by one in activation_test.cpp; optimizers and schedules have no gradient.
      if (family.name == "activation" || family.name == "optimizer" || family.name == "schedule") continue;
      INFO(family.name, " ", name);
      CHECK(with_case.contains({family.name, name}));
    }
  for (const auto& one : with_case) {
    INFO(one.first, " ", one.second);
    CHECK(known.contains(one));
  }
}
