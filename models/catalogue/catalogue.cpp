#include "models/catalogue/catalogue.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>

#include "engine/settings/registry.h"
#include "engine/types/format.h"
#include "models/data/algorithmic/base/problem.h"
#include "models/data/data_format.h"
#include "models/data/tokenizer.h"
#include "models/inspection/base/analysis.h"
#include "models/metrics/base/model_metric.h"
#include "models/model.h"
#include "models/tasks/base/task.h"
#include "nn/attentions/base/attention.h"
#include "nn/attentions/base/slots.h"
#include "nn/attentions/base/span.h"
#include "nn/base/gradient_case.h"
#include "nn/feed_forwards/base/feed_forward.h"
#include "nn/formulas/activation.h"
#include "nn/layers/layer.h"
#include "nn/losses/base/loss.h"
#include "nn/masks/base/mask.h"
#include "nn/normalizations/base/normalization.h"
#include "nn/optimizers/base/optimizer.h"
#include "nn/positions/base/position.h"
#include "nn/schedules/base/schedule.h"

namespace orrery::models {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

// Rounds to four digits; rounding errors near 0 print as 0.
std::string short_number(double x) {
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  if (std::abs(x) < 1e-12) return "0";
  return significant(x, 4);
}

// Returns the minimum of f, which may be one of its limits.
double minimum(const std::function<double(double)>& f, const std::array<double, 2>& limits) {
  constexpr double half_range = 16;
  constexpr int points = 4096;
  double best = 0, min_value = INFINITY;
  for (int i = -points; i <= points; ++i) {
    const double x = half_range * i / points, y = f(x);
    if (y < min_value) best = x, min_value = y;
  }
  double low = best - half_range / points,
         high = best + half_range / points;  // one minimum between them: ternary search
  for (int i = 0; i < 60; ++i) {
    const double a = low + (high - low) / 3, b = high - (high - low) / 3;
    (f(a) < f(b) ? high : low) = f(a) < f(b) ? b : a;
  }
  min_value = std::min(min_value, f((low + high) / 2));
  for (const double limit : limits)
    if (limit < min_value + 1e-5) min_value = limit;  // a function that falls towards its limit never reaches it
  return min_value;
}

Pairs properties_of(const nn::ActivationInfo& info, const std::function<double(double)>& value,
                    double derivative_at_zero) {
  std::vector<std::string> kinks;
  for (const double kink : info.kinks) kinks.push_back(short_number(kink));
  const auto limit = [](double x) { return std::isnan(x) ? std::string("none") : short_number(x); };
  return {{"kinks", kinks.empty() ? "none" : join(kinks)},
          {"F(0)", short_number(value(0))},
          {"F'(0)", short_number(derivative_at_zero)},
          {"minimum", short_number(minimum(value, info.limits))},
          {"limits", limit(info.limits[0]) + ", " + limit(info.limits[1])}};
}

CatalogueEntry activation(const std::string& name) {
  const nn::Activation f(name);
  const nn::ActivationInfo& info = f.info();
  CatalogueEntry entry{std::string(info.name), {}, std::string(info.formula), std::string(info.source), {}, {}};
  for (const std::string_view alias : info.aliases) entry.aliases.emplace_back(alias);
  for (const nn::ActivationPreset& preset : info.presets) entry.aliases.emplace_back(preset.name);
  for (const nn::ActivationConstant& constant : info.constants)
    entry.settings.emplace_back(constant.name, print_number(constant.value));
  entry.described = nn::ranges_of_activation(name);
  const std::vector<double> p = f.initial_parameters();
  std::vector<std::string> parameters;
  for (size_t i = 0; i < p.size(); ++i) parameters.push_back(text(info.parameters[i], " from ", short_number(p[i])));
  entry.properties = properties_of(info, [&](double x) { return f.value(x, p); }, f.derivative(0, p));
  entry.properties.insert(entry.properties.begin(), {"parameters", p.empty() ? "none" : join(parameters)});
  entry.properties.emplace_back("saved for backward", f.has_derivative_from_output() ? "y" : p.empty() ? "x" : "x, p");
  return entry;
}

template <class Entry>
CatalogueEntry registered(const Registry<Entry>& registry, const std::string& name,
                          const char* saves = "saved for backward") {
  const Entry& e = registry.at(name);
  CatalogueEntry entry{name, {}, std::string(e.formula), std::string(e.source), {}, {}, registry.aliases(name)};
  if constexpr (requires { e.settings; }) entry.settings = e.settings;
  if constexpr (requires { e.ranges; })
    if (e.ranges) entry.described = e.ranges();
  if constexpr (requires { e.parameters; }) entry.properties.emplace_back("parameters", e.parameters);
  if constexpr (requires { e.saves; }) entry.properties.emplace_back(saves, e.saves);
  if constexpr (requires { e.weight_of; })
    entry.properties.emplace_back("weight", e.weight_of.empty() ? "none: models use it directly" : "losses." + name);
  return entry;
}

CatalogueEntry tokenizer(const std::string& name) {
  return {name, {}, tokenizers().at(name).description, {}, {}, {}, tokenizers().aliases(name)};
}

CatalogueEntry data(const std::string& name) {
  const DataFormat& d = data_formats().at(name);
  return {name, {}, d.description, {}, {}, {{"kind", d.kind}}};
}

std::string listed(const Pairs& pairs, const std::string& equals, const std::string& separator) {
  std::vector<std::string> items;
  for (const auto& [key, value] : pairs)
    if (!value.empty()) items.push_back(key + equals + value);
  return join(items, separator);
}

std::vector<Setting> without_values(std::vector<Setting> settings) {
  for (Setting& setting : settings) std::visit([](auto& value) { value = nullptr; }, setting.value);
  return settings;
}

CatalogueEntry model(const std::string& name) {
  const ModelClass& m = model_classes().at(name);
  return {name, {}, m.description, m.source, list_settings(m.settings), {{"task", m.task}}, {},
          without_values(m.settings.members())};
}

CatalogueEntry task(const std::string& name) {
  const TaskClass& t = tasks().at(name);
  return {name, {}, t.description, {}, list_settings(t.settings), {}, {}, without_values(t.settings.members())};
}

CatalogueEntry model_metric(const std::string& name) {
  const ModelMetric& f = model_metrics().at(name);
  return {name, {}, f.description, {}, {}, {{"default", f.is_default ? "yes" : "no"}}, model_metrics().aliases(name)};
}

CatalogueEntry analysis(const std::string& name) {
  return {name, {}, analyses().at(name).description, {}, {}, {}, analyses().aliases(name)};
}

// Lists a preset's sizes and all settings that differ from its class.
CatalogueEntry model_preset(const std::string& name) {
  static constexpr std::array sizes = {"layers", "blocks", "heads", "width", "context", "patch"};
  const Preset& p = presets().at(name);
  CatalogueEntry entry{name, {}, p.description, {}, {}, {}, presets().aliases(name)};
  const Pairs defaults = list_settings(model_classes().at(p.model).settings);
  for (const auto& setting : list_settings(p.settings)) {
    const bool size = std::find(sizes.begin(), sizes.end(), setting.first) != sizes.end();
    if (size || std::find(defaults.begin(), defaults.end(), setting) == defaults.end())
      entry.settings.push_back(setting);
  }
  entry.described = without_values(p.settings.members());
  entry.properties = {{"model", p.model},
                      {"parameters", std::to_string(p.parameters)},
                      {"counted for", listed(p.counted_with, " ", ", ")}};
  return entry;
}

// Returns the settings of a span or of slots; the first has no default.
Pairs settings_of_attention_setting(const std::string& name) {
  const Spec one{name, {{"", Spec{"1", {}}}}}, all = name == "slots" ? nn::resolved_slots(one) : nn::resolved_span(one);
  Pairs settings;
  for (const Spec::Item& item : all.items) settings.emplace_back(item.key, settings.empty() ? "" : print(item.value));
  return settings;
}

CatalogueEntry attention_setting(const std::string& name) {
  for (const nn::Info& info : nn::attention_settings()) {
    if (info.name != name) continue;
    CatalogueEntry entry{name, {}, std::string(info.formula), std::string(info.source), {}, {}};
    entry.properties = {{"parameters", std::string(info.parameters)}, {"saved for backward", std::string(info.saves)}};
    if (info.ranges) entry.settings = settings_of_attention_setting(name), entry.described = info.ranges();
    return entry;
  }
  fail("attention_setting: no '", name, "'; see `orrery list attention_setting`");
}

struct FamilyForm {
  std::string name, title, description;
  CatalogueEntry (*entry)(const std::string& name);
  bool formulas = true;
  std::string former_name = {};
};
const std::vector<FamilyForm>& forms() {
  using Name = const std::string&;
  static const std::vector<FamilyForm> all = {
      {"activation", "Activations",
       "Elementwise functions F, also the argument of `dense(F)`.  Parameters are trained; the properties hold for "
       "their initial values.",
       activation},
      {"attention", "Attentions", "Attention layers of a block.",
       [](Name n) { return registered(nn::attentions(), n); }},
      {"attention_setting", "Attention settings",
       "Settings of attention layers; parameters are in addition to those of the layer.", attention_setting},
      {"feed_forward", "Feed-forward layers", "Feed-forward layers of a block.",
       [](Name n) { return registered(nn::feed_forwards(), n); }},
      {"normalization", "Normalizations",
       "Normalizations over the channels of each token, unless the formula states otherwise.",
       [](Name n) { return registered(nn::normalizations(), n); }},
      {"position", "Positions", "Position encodings.", [](Name n) { return registered(nn::positions(), n); }},
      {"mask", "Masks",
       "Which keys j a query i attends to, by their positions in the sequence; `and`, `or` and parentheses join masks "
       "in the setting `mask`.  Lengths, documents and spans narrow each further.",
       [](Name n) { return registered(nn::masks(), n); }},
      {"layer", "Other layers", "Modules that model classes use directly, without a setting.",
       [](Name n) { return registered(nn::layers(), n); }},
      {"loss", "Losses", "z are the logits.", [](Name n) { return registered(nn::losses(), n); }},
      {"optimizer", "Optimizers", "One step for the parameters p with gradients g.",
       [](Name n) { return registered(nn::optimizers(), n, "state"); }},
      {"schedule", "Schedules",
       "Learning rate after the warm-up, at progress p from 0 to 1.  `warmup_form` (linear or quadratic) applies to "
       "all.",
       [](Name n) { return registered(nn::schedules(), n); }},
      {"tokenizer", "Tokenizers", "Conversions between text and token ids.", tokenizer, false},
      {"data", "Data", "Formats of `--data`, recognized by the files and their content.", data, false},
      {"model", "Models", "Model classes with their settings and default `task`.", model, false},
      {"model_preset", "Presets of models", "Named settings of a model; further settings override them.", model_preset,
       false},
      {"problem", "Problems",
       "Problems of the task `algorithmic`: generated sequences; the loss counts the answers only.",
       [](Name n) { return registered(problems(), n); }},
      {"metric", "Metrics", "Metrics of model components for `--metrics`, logged every `metrics_every` steps.",
       model_metric, false, "figure"},
      {"analysis", "Analyses", "Analyses for `orrery inspect --analysis`.", analysis, false, "look"},
      {"task", "Tasks", "Training tasks; a task determines batches, loss and validation.", task, false},
  };
  return all;
}

std::vector<nn::Family> named_families() {
  std::vector<nn::Family> all = nn::families();
  const auto add = [&](const std::string& name, std::vector<std::string> members) {
    const bool known = std::any_of(all.begin(), all.end(), [&](const nn::Family& f) { return f.name == name; });
    if (!known) all.push_back({name, std::move(members)});
  };
  std::vector<std::string> settings;
  for (const nn::Info& info : nn::attention_settings()) settings.emplace_back(info.name);
  add("attention_setting", std::move(settings));
  add("tokenizer", tokenizers().names());
  add("data", data_formats().names());
  add("model", model_classes().names());
  add("model_preset", presets().names());
  add("metric", model_metrics().names());
  add("analysis", analyses().names());
  add("task", tasks().names());
  return all;
}

std::string cell(std::string text) {  // escapes | for a Markdown table
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

}  // namespace

std::vector<CatalogueFamily> catalogue() {
  std::vector<nn::Family> named = named_families();
  std::vector<CatalogueFamily> all;
  for (const FamilyForm& form : forms()) {
    CatalogueFamily family{form.name, form.title, form.description, {}, form.formulas, form.former_name};
    for (nn::Family& f : named)
      if (f.name == form.name)
        for (const std::string& member : std::exchange(f.members, {})) family.entries.push_back(form.entry(member));
    all.push_back(std::move(family));
  }
  for (const nn::Family& f : named) {  // families without a form list their names
    if (f.members.empty()) continue;
    all.push_back({f.name, f.name, "", {}});
    for (const std::string& member : f.members) all.back().entries.push_back({member, {}, {}, {}, {}, {}});
  }
  return all;
}

std::string catalogue_text(const CatalogueEntry& entry) {
  std::string all = "  " + entry.name + (entry.aliases.empty() ? "" : " (" + join(entry.aliases) + ")") + "\n";
  const auto line = [&](const std::string& content) {
    if (!content.empty()) all += "      " + content + "\n";
  };
  line(entry.formula);
  if (const std::string settings = listed(entry.settings, "=", ", "); !settings.empty()) line("settings: " + settings);
  line(listed(entry.properties, ": ", "; "));
  line(entry.source);
  return all;
}

std::string catalogue_text(const CatalogueFamily& family) {
  std::string all = family.name + ": " + family.description + "\n";
  for (const CatalogueEntry& entry : family.entries) all += catalogue_text(entry);
  return all;
}

std::string catalogue_markdown() {
  std::string all;
  for (const CatalogueFamily& family : catalogue()) {
    const auto any = [&](const auto& wanted) {
      return std::any_of(family.entries.begin(), family.entries.end(), wanted);
    };
    const bool with_settings = any([](const CatalogueEntry& e) { return !e.settings.empty(); });
    const bool with_source = any([](const CatalogueEntry& e) { return !e.source.empty(); });
    if (family.entries.empty()) continue;
    all += (all.empty() ? "" : "\n") + text("## ", family.title, "\n\n", family.description, "\n\n");
    std::vector<std::string> header = {"name", family.formulas ? "formula" : "description"};
    if (with_settings) header.push_back("settings");
    std::vector<size_t> properties;  // columns that are not empty
    for (size_t i = 0; i < family.entries[0].properties.size(); ++i)
      if (any([i](const CatalogueEntry& e) { return !e.properties[i].second.empty(); })) properties.push_back(i);
    for (const size_t i : properties) header.push_back(family.entries[0].properties[i].first);
    if (with_source) header.push_back("source");
    std::string rule = "|";
    for (size_t i = 0; i < header.size(); ++i) rule += " --- |";
    all += "| " + join(header, " | ") + " |\n" + rule + "\n";
    for (const CatalogueEntry& e : family.entries) {
      all += "| `" + e.name + "`" + (e.aliases.empty() ? "" : ", `" + join(e.aliases, "`, `") + "`") + " | " +
             cell(e.formula);
      if (with_settings) all += " | " + cell(listed(e.settings, "=", ", "));
      for (const size_t i : properties) all += " | " + cell(e.properties[i].second);
      if (with_source) all += " | " + cell(e.source);
      all += " |\n";
    }
  }
  return all;
}

}  // namespace orrery::models
