// The forecast of a step on other numbers of ranks.
#include "models/training/step_forecast.h"

#include <doctest/doctest.h>

#include <cstddef>

using namespace orrery;
using models::StepSeconds;

namespace {

void check_forecast(const StepSeconds& measured, int64_t parts, int64_t micro_batches,
                    const std::vector<StepSeconds>& expected) {
  const std::vector<StepSeconds> found = models::forecast_steps(measured, parts, micro_batches);
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i].ranks == expected[i].ranks);
    CHECK(found[i].all == doctest::Approx(expected[i].all));
    CHECK(found[i].exchange == doctest::Approx(expected[i].exchange));
  }
}

}  // namespace

TEST_CASE("step forecast: exchange by bytes, the rest by the busiest rank's micro-batches, at most a rank a part") {
  check_forecast({2, 10, 2}, 8, 8, {{1, 16, 0}, {2, 10, 2}, {4, 7, 3}, {8, 5.5, 3.5}});
  // One of 3 ranks has parts 2, 3 and 4 of 8, which are two sums; one of 4 ranks has one.
  check_forecast({3, 8, 2}, 8, 8, {{1, 16, 0}, {2, 9, 1}, {3, 8, 2}, {4, 5.5, 1.5}, {8, 3.75, 1.75}});
  check_forecast({2, 5, 1}, 2, 3, {{1, 6, 0}, {2, 5, 1}});
}
