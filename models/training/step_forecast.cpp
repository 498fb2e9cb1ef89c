#include "models/training/step_forecast.h"

#include <algorithm>
#include <set>
#include <utility>

#include "engine/distributed/part_tree.h"

namespace orrery::models {

std::vector<StepSeconds> forecast_steps(const StepSeconds& measured, int64_t parts, int64_t micro_batches) {
  const auto work_of = [&](int64_t ranks) {  // of the busiest rank: its micro-batches, and the gradients that it sends
    int64_t most = 0;
    size_t sums = 0;
    for (int64_t r = 0; r < ranks; ++r) {
      most = std::max(most, micro_batches_of(r, ranks, parts, micro_batches).size());
      sums = std::max(sums, PartTree(parts).nodes_of(share_of(parts, ranks, r)).size());
    }
    const auto n = static_cast<double>(ranks);
    return std::pair(static_cast<double>(most), static_cast<double>(sums + 1) * (n - 1) / n);
  };
  const auto now = work_of(measured.ranks);
  std::vector<StepSeconds> all;
  for (const int64_t ranks : std::set<int64_t>{1, 2, 4, 8, measured.ranks}) {
    if (ranks > parts) continue;
    const auto work = work_of(ranks);
    const double exchange = measured.exchange * work.second / now.second;
    all.push_back({ranks, (measured.all - measured.exchange) * work.first / now.first + exchange, exchange});
  }
  return all;
}

}  // namespace orrery::models
