// The forecast of a step's time on other numbers of ranks.
#pragma once

#include <cstdint>
#include <vector>

namespace orrery::models {

struct StepSeconds {
  int64_t ranks;
  double all, exchange;  // exchange: between ranks, a part of all
};
// Returns the seconds of a step on 1, 2, 4, 8 and measured.ranks ranks, up to one for each part, if all have the
// cores and the network of those that were measured, at least 2. Exchange is proportional to the bytes that the busiest
// rank sends, (p + 1) (N - 1) / N gradients with p sums, and the rest to the micro-batches of the busiest rank.
std::vector<StepSeconds> forecast_steps(const StepSeconds& measured, int64_t parts, int64_t micro_batches);

}  // namespace orrery::models
