// A short run: a few hundred steps of a small model, to check whether and how it trains.
#pragma once

#include <string>
#include <vector>

#include "engine/settings/spec.h"
#include "models/model.h"

namespace orrery::models {

struct ShortRun {
  double first_loss = 0, last_loss = 0;  // nats; the last is the mean of the last 20 steps
  std::vector<double> losses;            // nats, of every step
  double seconds = 0;
};

struct ShortRunOptions {
  Spec optimizer = parse_spec("adamw(beta2=0.99, weight_decay=0.1)"), schedule = parse_spec("constant");
  uint64_t seed = 1;
};

// Trains a model on `data`: batches of 4, a learning rate that reaches 1e-3 in step 20 and, if the
// schedule decays, ends at 1e-4. Equal seeds give all models equal batches. Stops at a loss that is
// not finite.
ShortRun short_run(const NamedModel& model, const std::string& data, int64_t steps,
                   const ShortRunOptions& options = {});

}  // namespace orrery::models
