#include "models/metrics/base/model_metric.h"

#include <cmath>

#include "engine/autograd/autograd.h"
#include "engine/autograd/hooks.h"
#include "engine/types/format.h"
#include "models/former_names.h"
#include "models/hook_names.h"
#include "models/metrics/base/padding.h"
#include "models/modules.h"
#include "nn/losses/base/loss.h"

namespace orrery::models {
Registry<ModelMetric>& model_metrics() {
  static Registry<ModelMetric> all("metric");
  return all;
}

bool add_model_metric(ModelMetric metric) {
  const std::vector<std::string> aliases = former_names(metric.name);
  metric.watches = current_hook_name(metric.watches);
  model_metrics().add(std::move(metric), aliases);
  return true;
}

std::vector<const ModelMetric*> select_metrics(const std::string& names) {
  std::vector<const ModelMetric*> chosen;
  const bool all = names == "all", is_default = names == "default";
  if (names == "none") return chosen;
  if (all || is_default) {
    for (const std::string& name : model_metrics().names())
      if (const ModelMetric& metric = model_metrics().at(name); all || metric.is_default) chosen.push_back(&metric);
    return chosen;
  }
  for (const std::string& name : split_list(names)) chosen.push_back(&model_metrics().at(name));
  return chosen;
}

std::vector<std::string> absent_metrics(const std::string& names,
                                        const std::function<void(MetricRow&, const ModelMetric*)>& collect) {
  std::vector<std::string> messages;
  if (names == "default" || names == "all") return messages;
  for (const ModelMetric* const metric : select_metrics(names)) {
    MetricRow row;
    collect(row, metric);
    if (row.empty())
      messages.push_back(text("--metrics: this model does not have '", metric->name, "' (", metric->description, ")",
                              metric->owners.empty() ? "" : "; it is a metric of ", metric->owners));
  }
  return messages;
}

void collect_metrics(MetricRow& row, std::span<const ModelMetric* const> metrics, nn::Module& model,
                     const std::function<void()>& forward, const nn::ForwardPass* pass) {
  std::vector<std::string> patterns;
  for (const ModelMetric* metric : metrics)
    if (!metric->watches.empty()) patterns.push_back("*." + metric->watches);
  const auto modules = modules_of(model);
  const std::map<std::string, nn::Module*> by_path(modules.begin(), modules.end());
  const Padding padding(model, pass);
  std::optional<Hooks> hooks;  // an empty list of patterns would match everything
  if (!patterns.empty())
    hooks.emplace(patterns, [&](const std::string& name, const Tensor& value) {
      const size_t dot = name.rfind('.');
      const auto module = by_path.find(name.substr(0, dot));
      if (module == by_path.end()) return;
      const Tensor unpadded = without_padding(name, value, padding.lengths(name, value));
      for (const ModelMetric* metric : metrics)
        if (metric->watches == name.substr(dot + 1)) metric->of_value(row, *module->second, unpadded);
    });
  forward();
}

void collect_metrics(MetricRow& row, std::span<const ModelMetric* const> metrics, const Task& task, nn::Module& model,
                     std::span<const Tensor> batch, const nn::Cache* stream_state) {
  bool watches = false, needs_losses = false;
  for (const ModelMetric* metric : metrics)
    watches |= !metric->watches.empty(), needs_losses |= metric->of_pass != nullptr;
  if (!watches && !needs_losses) return;
  const NoGrad no_gradient;
  nn::Cache cache;
  nn::ForwardPass pass;
  if (stream_state) cache = *stream_state, pass.cache = &cache;
  if (needs_losses)
    for (const auto& [name, loss] : nn::losses())
      if (!loss.weight_of.empty()) pass.requested_losses.insert(name);
  collect_metrics(
      row, metrics, model, [&] { task.loss(model, batch, pass); }, &pass);
  for (const ModelMetric* metric : metrics)
    if (metric->of_pass) metric->of_pass(row, pass);
}

void collect_metrics(MetricRow& row, std::span<const ModelMetric* const> metrics,
                     const nn::FlatParameters& parameters) {
  for (const ModelMetric* metric : metrics)
    if (metric->of_parameters) metric->of_parameters(row, parameters);
}

void log_metric(MetricRow& row, const std::string& name, const std::string& path, double value) {
  row[name + "/" + path] = value;
}
void log_metrics(MetricRow& row, const std::string& name, const std::string& path, const std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i) log_metric(row, name, path + "." + std::to_string(i), values[i]);
}

std::vector<double> means_of_heads(const Tensor& rows) {
  const int64_t heads = rows.size(1), length = rows.size(2);
  const std::vector<double> all = rows.to_vector();
  std::vector<double> sums(static_cast<size_t>(heads)), counts(static_cast<size_t>(heads));
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t head = i / static_cast<size_t>(length) % static_cast<size_t>(heads);
    if (!std::isnan(all[i])) sums[head] += all[i], counts[head] += 1;
  }
  for (size_t head = 0; head < sums.size(); ++head) sums[head] /= counts[head];
  return sums;
}

}  // namespace orrery::models
