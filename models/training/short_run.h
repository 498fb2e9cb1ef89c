// A short run: a few hundred steps of a small model, to check whether and how it trains.
#pragma once

#include <string>
#include <vector>

#include "models/model.h"

namespace orrery::models {

struct ShortRun {
  double first_loss = 0, last_loss = 0;  // nats; the last is the mean of the last 20 steps
  std::vector<double> losses;            // nats, of every step
  double seconds = 0;
};

// Trains a model on `data`: batches of 4, AdamW at 1e-3 after 20 warm-up steps. Equal seeds give
// all models equal batches. Stops at a loss that is not finite.
ShortRun short_run(const NamedModel& model, const std::string& data, int64_t steps, uint64_t seed = 1);

}  // namespace orrery::models
