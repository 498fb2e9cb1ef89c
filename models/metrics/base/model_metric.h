// Metrics of model components, logged every few steps as metric/path in metrics.jsonl.
//
//   entropy/blocks.0.attention.3     of head 3 of that attention
//
// A metric is one file of this folder. It reads hook values or losses of a micro-batch that runs
// once more before the step, in evaluation mode without gradient (so runs stay bit-identical), or
// parameters and gradients after the step. Padding is excluded (padding.h).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/settings/registry.h"
#include "models/tasks/base/task.h"
#include "nn/base/module.h"
#include "nn/optimizers/base/optimizer.h"

namespace orrery::models {

using MetricRow = std::map<std::string, double>;

struct ModelMetric {
  std::string name, description;
  std::string owners = {};   // components with this metric and a setting that adds one; empty: nearly all
  bool is_default = false;   // negligible cost: logged by default
  std::string watches = {};  // hook value (engine/autograd/hooks.h), such as "residual"
  void (*of_value)(MetricRow& row, nn::Module& module, const Tensor& value) = nullptr;
  void (*of_pass)(MetricRow& row, const nn::ForwardPass& pass) = nullptr;  // of a pass that has computed all losses
  void (*of_parameters)(MetricRow& row, const nn::FlatParameters& parameters) = nullptr;
};
Registry<ModelMetric>& model_metrics();
bool add_model_metric(ModelMetric metric);  // also under its former names (models/former_names.h)
#define REGISTER_METRIC(name, ...) \
  [[maybe_unused]] static const bool registered_metric_##name = ::orrery::models::add_model_metric(__VA_ARGS__)

// Parses "default", "all", "none" or a list with commas; errors name the nearest known name.
std::vector<const ModelMetric*> select_metrics(const std::string& names);

// Returns a message for each metric that a list names and that adds nothing to its own row: the
// model does not have it. For default, all and none there are no messages.
std::vector<std::string> absent_metrics(const std::string& names,
                                        const std::function<void(MetricRow&, const ModelMetric*)>& collect);

// Runs `forward`, a pass through the model, and adds the metrics of its hook values to `row`.
// `pass` is the one that `forward` uses, needed if some tokens are padding.
void collect_metrics(MetricRow& row, std::span<const ModelMetric* const> metrics, nn::Module& model,
                     const std::function<void()>& forward, const nn::ForwardPass* pass = nullptr);
// Runs the model on a micro-batch on its device and adds the metrics to `row`. `stream_state`: the
// cache from the previous block of a text stream, which is not changed; null: none.
void collect_metrics(MetricRow& row, std::span<const ModelMetric* const> metrics, const Task& task, nn::Module& model,
                     std::span<const Tensor> batch, const nn::Cache* stream_state);
// Adds the metrics of the parameters and their gradients.
void collect_metrics(MetricRow& row, std::span<const ModelMetric* const> metrics, const nn::FlatParameters& parameters);

// Add "name/path" to the row, and for values of heads "name/path.0", "name/path.1", ...
void log_metric(MetricRow& row, const std::string& name, const std::string& path, double value);
void log_metrics(MetricRow& row, const std::string& name, const std::string& path, const std::vector<double>& values);
// rows: one value per query, (B, H, T); NaN: no key is visible. Returns the mean of the others of
// each head, (H).
std::vector<double> means_of_heads(const Tensor& rows);

}  // namespace orrery::models
