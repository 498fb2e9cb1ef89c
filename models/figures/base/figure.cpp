#include "models/figures/base/figure.h"

#include <cmath>

#include "engine/autograd/autograd.h"
#include "engine/autograd/hooks.h"
#include "engine/types/wording.h"
#include "models/figures/base/padding.h"
#include "models/former_names.h"
#include "models/hook_names.h"
#include "models/modules.h"
#include "nn/losses/base/loss.h"

namespace orrery::models {
Registry<Figure>& figures() {
  static Registry<Figure> all("metric");
  return all;
}

bool add_figure(Figure figure) {
  const std::vector<std::string> aliases = former_names(figure.name);
  figure.watches = current_hook_name(figure.watches);
  figures().add(std::move(figure), aliases);
  return true;
}

std::vector<const Figure*> figures_called(const std::string& names) {
  std::vector<const Figure*> chosen;
  const bool all = names == "all", usual = names == "default";
  if (names == "none") return chosen;
  if (all || usual) {
    for (const std::string& name : figures().names())
      if (const Figure& figure = figures().at(name); all || figure.usual) chosen.push_back(&figure);
    return chosen;
  }
  for (const std::string& name : items_of(names)) chosen.push_back(&figures().at(name));
  return chosen;
}

void look(FigureRow& row, std::span<const Figure* const> figures, nn::Module& model,
          const std::function<void()>& forward, const nn::Pass* pass) {
  std::vector<std::string> patterns;
  for (const Figure* figure : figures)
    if (!figure->watches.empty()) patterns.push_back("*." + figure->watches);
  const auto modules = modules_of(model);
  const std::map<std::string, nn::Module*> by_path(modules.begin(), modules.end());
  const Padding padding(model, pass);
  std::optional<Hooks> hooks;  // an empty list of patterns would match everything
  if (!patterns.empty())
    hooks.emplace(patterns, [&](const std::string& name, const Tensor& value) {
      const size_t dot = name.rfind('.');
      const auto module = by_path.find(name.substr(0, dot));
      if (module == by_path.end()) return;
      const Tensor real = without_padding(name, value, padding.lengths(name, value));
      for (const Figure* figure : figures)
        if (figure->watches == name.substr(dot + 1)) figure->of_value(row, *module->second, real);
    });
  forward();
}

void look(FigureRow& row, std::span<const Figure* const> figures, const Task& task, nn::Module& model,
          std::span<const Tensor> batch, const nn::Cache* carried) {
  bool watches = false, wants_losses = false;
  for (const Figure* figure : figures) watches |= !figure->watches.empty(), wants_losses |= figure->of_pass != nullptr;
  if (!watches && !wants_losses) return;
  const NoGrad no_gradient;
  nn::Cache before;
  nn::Pass pass;
  if (carried) before = *carried, pass.cache = &before;
  if (wants_losses)
    for (const auto& [name, loss] : nn::losses())
      if (!loss.weight_of.empty()) pass.wanted_losses.insert(name);
  look(
      row, figures, model, [&] { task.loss(model, batch, pass); }, &pass);
  for (const Figure* figure : figures)
    if (figure->of_pass) figure->of_pass(row, pass);
}

void look(FigureRow& row, std::span<const Figure* const> figures, const nn::FlatParameters& parameters) {
  for (const Figure* figure : figures)
    if (figure->of_parameters) figure->of_parameters(row, parameters);
}

void tell(FigureRow& row, const std::string& name, const std::string& path, double value) {
  row[name + "/" + path] = value;
}
void tell_each(FigureRow& row, const std::string& name, const std::string& path, const std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i) tell(row, name, path + "." + std::to_string(i), values[i]);
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
