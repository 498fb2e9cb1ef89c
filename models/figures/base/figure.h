// Figures: what a run may log of its parts every so many steps, as keys figure/place of metrics.jsonl.
//
//   entropy/blocks.0.attention.3     of head 3 of that attention
//
// A figure is a file of this folder.  It looks at what modules show while one micro-batch runs once more, in evaluation
// mode and without gradient, before the step (so it can change no bit of the run); or at the losses of that pass; or at
// the parameters and gradients after the step.  Padding is not looked at (models/figures/base/padding.h).
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
  bool usual = false;        // costs next to nothing: logged unless others are named
  std::string watches = {};  // what modules show (engine/autograd/hooks.h), such as "residual"
  void (*of_value)(FigureRow& row, nn::Module& module, const Tensor& value) = nullptr;
  void (*of_pass)(FigureRow& row, const nn::Pass& pass) = nullptr;  // which has computed every loss there is
  void (*of_parameters)(FigureRow& row, const nn::FlatParameters& parameters) = nullptr;
};
Registry<Figure>& figures();
#define REGISTER_FIGURE(name, ...) \
  [[maybe_unused]] static const bool registered_figure_##name = (::orrery::models::figures().add(__VA_ARGS__), true)

// "usual", "all", "none", or names with commas between them; an Error names the nearest of one that is unknown.
std::vector<const Figure*> figures_called(const std::string& names);

// Runs `forward`, a pass through the model, and tells what the figures say of the values that it shows.  `pass` is what
// `forward` runs with, if some of its tokens are padding.
void look(FigureRow& row, std::span<const Figure* const> figures, nn::Module& model,
          const std::function<void()>& forward, const nn::Pass* pass = nullptr);
// Runs the model on a micro-batch, whose tensors lie on its device, and tells what the figures say of it.  `carried` is
// what a stream brings along; it stays as it is.
void look(FigureRow& row, std::span<const Figure* const> figures, const Task& task, nn::Module& model,
          std::span<const Tensor> batch, const nn::Cache* carried);
// Of the parameters and their gradients.
void look(FigureRow& row, std::span<const Figure* const> figures, const nn::FlatParameters& parameters);

// For figures: "name/path", and for values of heads "name/path.0", "name/path.1", ...
void tell(FigureRow& row, const std::string& name, const std::string& path, double value);
void tell_each(FigureRow& row, const std::string& name, const std::string& path, const std::vector<double>& values);
// The mean of each head's rows (B, H, T); rows that are no number, which see nothing, do not count.
std::vector<double> means_of_heads(const Tensor& rows);

}  // namespace orrery::models
