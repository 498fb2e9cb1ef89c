// Examples for inspection, for every model class, and models far from their initial values, so that
// every parameter has an effect.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/architectures/gpt.h"
#include "models/inspection/base/analysis.h"
#include "tests/support/model_cases.h"

namespace orrery::testing {

inline std::shared_ptr<const models::Tokenizer> numbers(int64_t size) {
  return models::restore_tokenizer(R"({"name": "numbers", "size": )" + std::to_string(size) + "}");
}

// Moves every unbounded parameter away from its initial value.
inline void randomize(nn::Module& model) {
  nn::initialize(model, 3);
  for (const nn::NamedParameter& p : nn::parameters_of(model)) {
    if (std::isfinite(p.parameter->min_value) || std::isfinite(p.parameter->max_value)) continue;
    const Tensor& value = p.parameter->value;
    const std::vector<double> old = value.to_vector();
    fill(value, nn::normal(0.3), RandomKey{9, 1}.derive(p.path));
    std::vector<double> moved = value.to_vector();
    for (size_t i = 0; i < moved.size(); ++i) moved[i] += old[i];
    value.copy_from(Tensor::from(value.shape(), moved, value.dtype()));
  }
}

inline std::unique_ptr<nn::Module> randomized(const Assignments& settings) {  // in f64
  auto model = models::make_model(models::make_settings(settings));
  nn::convert(*model, Dtype::f64);
  randomize(*model);
  return model;
}

// Returns an example with a text of token ids below 9, such as "1 2 3".
inline std::unique_ptr<models::InspectedExample> example_of(nn::Module& model, const std::string& text) {
  return models::text_example(dynamic_cast<models::LanguageModel&>(model), numbers(9), text);
}
// Returns an example for a model of model_cases(); seeds 0 and 1 differ.
inline std::unique_ptr<models::InspectedExample> example_of(nn::Module& model, int seed = 0) {
  if (auto* const images = dynamic_cast<models::ImageModel*>(&model))
    return models::image_example(*images, random_tensor({1, 8, 8, 1}, 5 + seed).to(Dtype::f32),
                                 {"bag", "shirt", "shoe"}, 1 + seed);
  if (auto* const pairs = dynamic_cast<models::TranslationModel*>(&model))
    return models::pair_example(*pairs, numbers(7), seed == 0 ? "0 1 4 2" : "0 3 4 2",
                                seed == 0 ? "1 2 4 5 6" : "1 2 4 6 5");
  return example_of(model, seed == 0 ? "0 1 4 2 2 4 1 0" : "0 1 5 2 2 4 1 3");
}

inline std::unique_ptr<nn::Module> small_gpt(const Assignments& settings, Dtype dtype = Dtype::f64) {
  Assignments all = {{"model", "gpt"}, {"vocabulary", "9"}, {"context", "8"}};
  all.insert(all.end(), {{"layers", "2"}, {"heads", "2"}, {"width", "16"}});
  all.insert(all.end(), settings.begin(), settings.end());
  auto model = models::make_model(models::make_settings(all));
  nn::convert(*model, dtype);
  randomize(*model);
  return model;
}

inline Tensor parameter_of(nn::Module& model, const std::string& path) {
  for (const nn::NamedParameter& p : nn::parameters_of(model))
    if (p.path == path) return p.parameter->value;
  FAIL("no parameter ", path);
  return {};
}

inline const models::View* find_view(const std::vector<models::View>& views, std::string_view title) {
  for (const models::View& view : views)
    if (view.title == title || view.name == title) return &view;
  return nullptr;
}
// Returns the data of the view with this title or name.
template <class Kind>
const Kind& shown(const std::vector<models::View>& views, std::string_view title) {
  const models::View* const view = find_view(views, title);
  REQUIRE_MESSAGE(view, "no view ", title);
  REQUIRE(std::holds_alternative<Kind>(view->data));
  return std::get<Kind>(view->data);
}
template <class Kind>
const Kind& shown(std::vector<models::View>&& views, std::string_view title) = delete;  // views must outlive the result

// Returns the row with this name of a map.
inline std::vector<double> row_of(const models::MapView& map, const std::string& name) {
  const auto at = std::find(map.rows.begin(), map.rows.end(), name);
  REQUIRE(at != map.rows.end());
  return map.values[0][at - map.rows.begin()].to_vector();
}
// Returns the value of the bar with this name.
inline double bar_of(const models::BarView& bars, const std::string& name) {
  for (const models::BarView::Bar& bar : bars.bars)
    if (bar.name == name) return bar.value;
  FAIL("no bar ", name);
  return NAN;
}

}  // namespace orrery::testing
