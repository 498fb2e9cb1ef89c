// The stated properties of every registered activation.
#include "models/checks/property_check.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "engine/settings/registry.h"
#include "tests/nn/activations/curves.h"

using namespace orrery;
using namespace orrery::nn;
using namespace orrery::testing::curves;

TEST_CASE("every activation: its info states true properties, with other constants too") {
  std::vector<Activation> all = every_activation();
  for (const std::string& name : every_learned_activation()) all.push_back(Activation(name));
  for (const Activation& f : all) {
    INFO(f.spec());
    CHECK(join(models::property_errors(f)) == "");
  }
}
