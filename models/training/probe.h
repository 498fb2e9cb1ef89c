// Signal propagation before the first step: how large values are on their way through the model, and gradients on their
// way back, beside what papers predict (nn/diagnostics/predictions.h).
//
// One micro-batch, the first of step 1, goes through a copy of the model, forward in training mode and backward.  In it
// dropout is 0, which would add its noise to what is predicted.  The run's own model, gradients and random numbers are
// not touched, so no bit of the run is another.
//
//   RUN/probe.json    {"format": "orrery probe 1", "values": [{"name", "mean_square", "gradient"}],
//                      "ratios": [{"place", "ratio", "measured", "predicted", "formula", "v"}]}, null for no number
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "models/tasks/base/task.h"
#include "models/training/settings.h"

namespace orrery::models {

struct Probe {
  struct Value {         // mean squares over all elements, padding left out (models/figures/base/padding.h)
    std::string name;    // engine/autograd/hooks.h
    double mean_square;  // forward
    double gradient;     // of the loss with respect to it; no number if none arrives
  };
  struct Ratio {
    std::string place;  // path of a module
    std::string ratio;  // of mean squares: "read / value"
    double measured;
    double predicted;     // no number where nobody says
    std::string formula;  // of the prediction; empty: there is none
    double v;  // in the formula: mean square, or variance, of the scores, of what F is applied to, of what is
               // normalized; no number where nobody says
  };
  std::vector<Value> values;  // in the order in which they arise
  std::vector<Ratio> ratios;  // in the order of the model's parts

  const Value* find(const std::string& name) const;  // null: it did not arise
};

// What a step of the residual stream does: from `stream` to `residual` by adding `output`; null where one is not shown.
// At the model's ends there is `after` alone: embeddings and logits.
struct StreamStep {
  std::string place;
  const Probe::Value *before, *adds, *after;
};
std::vector<StreamStep> stream_steps(const Probe& probe);  // as long as the probe lives

// `settings` are the run's, as its task has completed them; `model` and `batch` lie on one device.
Probe probe_signals(const TrainSettings& settings, const Task& task, nn::Module& model, std::span<const Tensor> batch);

// What `run` does on values that arise in the modules of `root`: `run` returns the loss, which is differentiated.  For
// probe_signals, and for what is no model of a task.  `pass` is what `run` runs with, if some tokens are padding.
Probe probe_modules(nn::Module& root, const std::function<Tensor()>& run, const nn::Pass* pass = nullptr);

std::string probe_file(const std::string& run);  // RUN/probe.json
void write_probe(const std::string& file, const Probe& probe);
Probe read_probe(const std::string& file);  // Errors begin with the file
// An Error if a probe of this run would replace a file that none has written.
void check_free_for_probe(const std::string& run);

}  // namespace orrery::models
