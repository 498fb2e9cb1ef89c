#include "models/inspection/base/analysis.h"

#include <algorithm>
#include <numeric>

#include "engine/ops/ops.h"
#include "engine/types/format.h"
#include "engine/types/usage_error.h"
#include "models/former_names.h"

namespace orrery::models {

Registry<Analysis>& analyses() {
  static Registry<Analysis> all("analysis");
  return all;
}

bool add_analysis(Analysis analyze) {
  const std::vector<std::string> aliases = former_names(analyze.name);
  analyses().add(std::move(analyze), aliases);
  return true;
}

namespace {

std::vector<std::string> analysis_names(const std::string& names) {
  std::vector<std::string> selected = names == "all" ? analyses().names() : split_list(names);
  for (std::string& name : selected) name = analyses().at(name).name;
  return selected;
}

}  // namespace

void check_analyses(const std::string& names) { analysis_names(names); }

std::vector<View> analyze(const InspectedExample& example, const std::string& names, const AnalysisSettings& settings) {
  const std::vector<std::string> selected = analysis_names(names);
  std::vector<View> views;
  for (const std::string& name : analyses().names())
    if (std::find(selected.begin(), selected.end(), name) != selected.end())
      analyses().at(name).analyze(views, example, settings);
  return views;
}

std::map<std::string, double> metrics_of(std::span<const View> views) {
  std::map<std::string, double> all;
  for (const View& view : views)
    for (const auto& [name, value] : view.metrics)
      if (!std::isnan(value)) all[name] = value;
  return all;
}

Tensor to_cpu(const Tensor& value) {
  const Tensor here = value.detach().to(Device::cpu);
  return here.dtype() == Dtype::f64 ? here : here.to(Dtype::f32);
}

Tensor capture_values(
    const InspectedExample& example, const std::vector<std::string>& patterns,
    const std::function<void(const std::string& path, const std::string& name, const Tensor& value)>& watch) {
  const Hooks hooks(patterns, [&](const std::string& full, const Tensor& value) {
    const size_t dot = full.rfind('.');
    const bool of_model = dot == std::string::npos;
    watch(of_model ? "" : full.substr(0, dot), of_model ? full : full.substr(dot + 1), value);
  });
  return example.run();
}

std::vector<std::vector<Captured>> capture(const InspectedExample& example, const std::vector<std::string>& names) {
  std::vector<std::vector<Captured>> captured(names.size());
  std::vector<std::string> patterns;
  for (const std::string& name : names) patterns.push_back("*." + name), patterns.push_back(name);
  capture_values(example, patterns, [&](const std::string& path, const std::string& name, const Tensor& value) {
    for (size_t i = 0; i < names.size(); ++i)
      if (names[i] == name) captured[i].push_back({path, to_cpu(value)});
  });
  return captured;
}

std::vector<Captured> capture(const InspectedExample& example, const std::string& name) {
  return std::move(capture(example, std::vector<std::string>{name})[0]);
}

std::vector<size_t> chosen_layers(size_t layers, int64_t layer, const std::string& module_kind) {
  check_usage(layer < static_cast<int64_t>(layers), "inspect: --layer=", layer, " is out of range; ", module_kind,
              " have numbers from 0 to ", layers - 1);
  if (layer >= 0) return {static_cast<size_t>(layer)};
  std::vector<size_t> each(layers);
  std::iota(each.begin(), each.end(), size_t{0});
  return each;
}

void check_head(int64_t head, int64_t heads, const std::string& path) {
  check_usage(head < heads, "inspect: --head=", head, " is out of range; ", path, " has heads from 0 to ", heads - 1);
}

}  // namespace orrery::models
