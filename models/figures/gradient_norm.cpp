// Gradient norm over the parameters of each component of a model, before clipping.
#include <algorithm>
#include <cctype>
#include <cmath>

#include "models/figures/base/figure.h"

namespace orrery::models {
namespace {

// Returns the component: "blocks.0.attention.output.weight" belongs to blocks.0.attention,
// "head.weight" to head. It ends with the name after the last number, or else with the first name.
std::string part_of_model(const std::string& path) {
  std::vector<std::string> words;
  size_t numbered = 0;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('.', at), path.size());
    words.push_back(path.substr(at, end - at));
    if (std::all_of(words.back().begin(), words.back().end(), [](unsigned char c) { return std::isdigit(c); }))
      numbered = words.size();
    at = end + 1;
  }
  std::string part = words[0];
  for (size_t i = 1; i <= numbered && i < words.size(); ++i) part += "." + words[i];
  return part;
}

void tell_gradient_norms(FigureRow& row, const nn::FlatParameters& parameters) {
  FigureRow squares;
  const Tensor square = Tensor::zeros(Shape{}, Dtype::f64, parameters.gradients().device());
  for (const nn::FlatParameters::Segment& segment : parameters.segments()) {
    nn::sum_of_squares(parameters.part(parameters.gradients(), segment), square);
    squares[part_of_model(segment.path)] += square.to_vector().at(0);
  }
  for (const auto& [part, sum] : squares) tell(row, "gradient_norm", part, std::sqrt(sum));
}

REGISTER_FIGURE(gradient_norm, {.name = "gradient_norm",
                                .description = "gradient norm of the parameters of each component, before clipping",
                                .usual = true,
                                .of_parameters = tell_gradient_norms});

}  // namespace
}  // namespace orrery::models
