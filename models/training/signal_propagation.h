// Signal propagation before the first step: mean squares of activations and gradients through the
// model, next to the values that papers predict (nn/diagnostics/predictions.h).
//
// The first micro-batch of step 1 runs forward in training mode and backward through a copy of the
// model. Its dropout is 0, because dropout would add noise to the predicted values. The run's own
// model, gradients and random numbers are not touched, so the run stays bit-identical.
//
//   RUN/signal_propagation.json
//                     {"format": "orrery probe 1", "values": [{"name", "mean_square", "gradient"}],
//                      "ratios": [{"place", "ratio", "measured", "predicted", "formula", "v"}]}, null for NaN
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "models/tasks/base/task.h"
#include "models/training/settings.h"

namespace orrery::models {

struct SignalPropagation {
  struct Value {         // mean squares over all elements, padding left out (models/metrics/base/padding.h)
    std::string name;    // engine/autograd/hooks.h
    double mean_square;  // forward
    double gradient;     // of the loss with respect to the value; NaN if there is no gradient
  };
  struct Ratio {
    std::string path;   // module path
    std::string ratio;  // of mean squares: "head_output / value"
    double measured;
    double predicted;     // NaN without a prediction
    std::string formula;  // of the prediction; empty if there is none
    double v;  // in the formula: mean square, or variance, of the scores, of F's argument, or of the normalization's
               // input; NaN if there is none
  };
  std::vector<Value> values;  // in order of execution
  std::vector<Ratio> ratios;  // in the order of the modules

  const Value* find(const std::string& name) const;  // null if there is no such value
};

// A step of the residual stream: `stream` plus `output` gives `residual`; null where a value was
// not recorded. Embeddings and logits at the model's ends have `after` alone.
struct ResidualRow {
  std::string path;
  const SignalPropagation::Value *before, *output, *after;
};
std::vector<ResidualRow> residual_rows(const SignalPropagation& propagation);  // valid while `propagation` lives

// Cells of tables; "-" for no number. A row of the residual stream has its path, the mean squares
// and the gradients; a row of a ratio has measured / predicted after both.
std::string cell(double x);
std::string cell(const SignalPropagation::Value* value, double SignalPropagation::Value::* which);
std::vector<std::string> cells(const ResidualRow& row);
std::vector<std::string> cells(const SignalPropagation::Ratio& ratio);

// `settings` are the run's, completed by its task; `model` and `batch` are on one device.
SignalPropagation measure_signals(const TrainSettings& settings, const Task& task, nn::Module& model,
                                  std::span<const Tensor> batch);

// Measures the modules of `root` while `run` computes the loss, which is differentiated. It also
// serves models without a task. `pass` is the forward pass of `run`, needed if tokens are padded.
SignalPropagation measure_modules(nn::Module& root, const std::function<Tensor()>& run,
                                  const nn::ForwardPass* pass = nullptr);

std::string propagation_file(const std::string& run);  // RUN/signal_propagation.json, which this program writes
std::string signal_propagation_to_read(const std::string& run);  // that file or, of an older run, RUN/probe.json
void write_propagation(const std::string& file, const SignalPropagation& propagation);
SignalPropagation read_propagation(const std::string& file);  // Errors begin with the file
// Throws if this run would replace a file that no signal propagation has written.
void check_free_for_propagation(const std::string& run);

}  // namespace orrery::models
