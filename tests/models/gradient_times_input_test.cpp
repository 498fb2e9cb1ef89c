// Gradient times input against finite differences, and completeness for a linear model.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/autograd/hooks.h"
#include "models/inspection/base/edited_run.h"
#include "models/inspection/base/targets.h"
#include "tests/support/inspected_examples.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

// Returns ln p of the answer and the difference of logits, with the embedding of one position times a factor.
std::pair<double, double> objectives(const InspectedExample& example, const std::string& embedding, int64_t position,
                                     double factor, int64_t row, int32_t answer, int32_t against) {
  const Tensor logits = run_edited(example, {{.hook = embedding,
                                              .region = {{1, position, position + 1}},
                                              .operation = ValueEdit::Operation::scale,
                                              .number = factor}});
  const std::vector<double> z = logits[row].to_vector();
  return {log_probability(z, answer, most_likely(z)),
          z[static_cast<size_t>(answer)] - z[static_cast<size_t>(against)]};
}

}  // namespace

TEST_CASE("gradient times input: values equal finite differences, for texts, images and translations") {
  const Assignments sizes = {{"layers", "2"}, {"heads", "2"}, {"width", "16"}};
  const Assignments models[] = {
      {{"model", "gpt"}, {"vocabulary", "9"}, {"context", "8"}, {"attention", "pointwise(gelu)"}},
      {{"model", "vit"}, {"image_size", "8"}, {"channels", "1"}, {"classes", "3"}},
      {{"model", "encoder_decoder"}, {"vocabulary", "9"}}};
  for (Assignments settings : models) {
    CAPTURE(settings[0].second);
    settings.insert(settings.end(), sizes.begin(), sizes.end());
    const auto model = make_model(make_settings(settings));
    nn::convert(*model, Dtype::f64);
    randomize(*model);
    const auto inspected = example_of(*model);
    const std::vector<View> views = analyze(*inspected, "gradient_times_input", {});
    const Tensor logits = inspected->run();
    const Targets targets = targets_of(*inspected, logits);
    const auto row = static_cast<int64_t>(targets.last());
    const int32_t answer = targets.by_row[targets.last()];
    std::vector<double> z = logits[row].to_vector();
    z[static_cast<size_t>(answer)] = -INFINITY;
    const int32_t against = most_likely(z);
    int maps = 0;
    for (const View& view : views) {
      const auto* const map = std::get_if<MapView>(&view.data);
      if (!map) continue;
      ++maps;
      const std::string embedding = view.title.substr(std::string("Gradient times ").size());
      CAPTURE(embedding);
      const std::vector<double> of_p = map->values[0][0].to_vector(), of_logits = map->values[0][1].to_vector();
      CHECK(std::any_of(of_p.begin(), of_p.end(), [](double x) { return std::abs(x) > 1e-3; }));
      for (size_t t = 0; t < of_p.size(); ++t) {
        constexpr double h = 1e-5;
        const auto at = [&](double factor) {
          return objectives(*inspected, embedding, static_cast<int64_t>(t), factor, row, answer, against);
        };
        const auto above = at(1 + h), below = at(1 - h);
        CHECK(std::abs(of_p[t] - (above.first - below.first) / (2 * h)) < 1e-7);
        CHECK(std::abs(of_logits[t] - (above.second - below.second) / (2 * h)) < 1e-7);
      }
    }
    CHECK(maps == (settings[0].second == "encoder_decoder" ? 2 : 1));
  }
}

TEST_CASE("gradient times input: values of a linear model add up to the difference of the logits") {
  const auto model = small_gpt({{"normalization", "none"}, {"final_normalization", "none"}, {"bias", "no"},
                                {"feed_forward", "dense(identity)"}});
  const auto inspected = example_of(*model);
  // Constant weights make the attention linear.
  const Hooks hooks({"*.weights"}, Hooks::Replace{[](const std::string&, const Tensor& w) {
                      return Tensor::full_like(w, w.shape(), 0.3);
                    }});
  const std::vector<View> views =
      analyze(*inspected, "gradient_times_input", {.position = 5, .answer = "5", .against = "2"});
  const auto& map = shown<MapView>(views, "gradient_times_input/embedding");
  CHECK(map.rows == std::vector<std::string>{"ln p of '␣5'", "logit of '␣5' - '␣2'"});
  const std::vector<double> values = map.values[0][1].to_vector(), z = inspected->run()[5].to_vector();
  CHECK(std::accumulate(values.begin(), values.end(), 0.0) == doctest::Approx(z[5] - z[2]).epsilon(1e-10));
  CHECK(values[7] == 0);  // a later position
}

TEST_CASE("gradient times input: a model has no gradients afterwards, and its parameters can be trained") {
  const auto model = small_gpt({});
  analyze(*example_of(*model), "gradient_times_input, logit_attribution", {});
  for (const nn::NamedParameter& p : nn::parameters_of(*model)) {
    CHECK(p.parameter->value.requires_grad());
    CHECK(!p.parameter->value.grad());
  }
}
