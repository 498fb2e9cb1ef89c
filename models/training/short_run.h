// A few hundred steps of a small model, to see whether and how something trains.
#pragma once

#include <string>
#include <vector>

#include "models/model.h"

namespace orrery::models {

struct ShortRun {
  double first_loss = 0, last_loss = 0;  // in nats; the last is the mean of the last 20
  std::vector<double> losses;            // of every step
  double seconds = 0;
};

// Trains a model on its task with that data: batches of 4, AdamW at 1e-3 after 20 warm-up steps.  The same seed gives
// the same batches to every model.  Stops at a loss that is not finite.
ShortRun short_run(const NamedModel& model, const std::string& data, int64_t steps, uint64_t seed = 1);

}  // namespace orrery::models
