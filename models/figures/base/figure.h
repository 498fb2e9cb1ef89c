// Figures: metrics of model components, logged every few steps as figure/path in metrics.jsonl.
//
//   entropy/blocks.0.attention.3     of head 3 of that attention
//
// A figure is one file of this folder. It reads hook values or losses of a micro-batch that runs
// once more before the step, in evaluation mode without gradient (so runs stay bit-identical), or
// parameters and gradients after the step. Padding is excluded (padding.h).
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/settings/registry.h"
#include "models/tasks/base/task.h"
#include "nn/base/module.h"
#include "nn/optimizers/base/optimizer.h"

namespace orrery::models {

using FigureRow = std::map<std::string, double>;

struct Figure {
  std::string name, description;
  bool usual = false;        // negligible cost: logged by default
  std::string watches = {};  // hook value (engine/autograd/hooks.h), such as "residual"
  void (*of_value)(FigureRow& row, nn::Module& module, const Tensor& value) = nullptr;
  void (*of_pass)(FigureRow& row, const nn::Pass& pass) = nullptr;  // of a pass that has computed all losses
  void (*of_parameters)(FigureRow& row, const nn::FlatParameters& parameters) = nullptr;
};
Registry<Figure>& figures();
bool add_figure(Figure figure);  // also under its former names (models/former_names.h)
#define REGISTER_FIGURE(name, ...) \
  [[maybe_unused]] static const bool registered_figure_##name = ::orrery::models::add_figure(__VA_ARGS__)

// Parses "default", "all", "none" or a list with commas; errors name the nearest known name.
std::vector<const Figure*> figures_called(const std::string& names);

// Runs `forward`, a pass through the model, and adds the figures of its hook values to `row`.
// `pass` is the one that `forward` uses, needed if some tokens are padding.
void look(FigureRow& row, std::span<const Figure* const> figures, nn::Module& model,
          const std::function<void()>& forward, const nn::Pass* pass = nullptr);
// Runs the model on a micro-batch on its device and adds the figures to `row`. `carried` is a
// stream's state and is not changed.
void look(FigureRow& row, std::span<const Figure* const> figures, const Task& task, nn::Module& model,
          std::span<const Tensor> batch, const nn::Cache* carried);
// Adds the figures of the parameters and their gradients.
void look(FigureRow& row, std::span<const Figure* const> figures, const nn::FlatParameters& parameters);

// Log "name/path", and for values of heads "name/path.0", "name/path.1", ...
void tell(FigureRow& row, const std::string& name, const std::string& path, double value);
void tell_each(FigureRow& row, const std::string& name, const std::string& path, const std::vector<double>& values);
// Returns the mean of each head's rows (B, H, T) without NaN rows, which are fully masked.
std::vector<double> means_of_heads(const Tensor& rows);

}  // namespace orrery::models
