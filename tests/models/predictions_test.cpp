// Predictions of an example: the loss of each token and the most likely choices, against plain computations.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "engine/ops/ops.h"
#include "models/inspection/base/targets.h"
#include "tests/support/inspected_examples.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

TEST_CASE("predictions: choices are the softmax of the logits, largest first; each token has its own loss") {
  const auto model = small_gpt({});
  const auto inspected = example_of(*model, "0 1 4 2 2 4 1 0");
  const std::vector<View> views = analyze(*inspected, "predictions", {.top = 3});
  const auto& choices = shown<ChoicesView>(views, "Most likely tokens");
  const auto& tokens = shown<TokensView>(views, "Input");
  const Tensor logits = inspected->run(), p = exp(logits) / sum(exp(logits), {-1}, true);
  REQUIRE(choices.positions.size() == 8);
  REQUIRE(tokens.tokens == choices.positions);
  CHECK(std::isnan(tokens.values[0]));  // no token precedes the first
  for (int64_t row = 0; row < 8; ++row) {
    CAPTURE(row);
    const auto i = static_cast<size_t>(row);
    const std::vector<double> all = p[row].to_vector();
    REQUIRE(choices.choices[i].size() == 3);
    std::vector<double> sorted = all;
    std::sort(sorted.rbegin(), sorted.rend());
    for (size_t k = 0; k < 3; ++k) CHECK(std::abs(choices.choices[i][k].probability - sorted[k]) <= 1e-12);
    CHECK(choices.choices[i][0].name == inspected->target_name(most_likely(all)));
    const int32_t target = inspected->targets()[i];
    CHECK(choices.targets[i].name.empty() == (row == 7));
    if (row == 7) continue;
    CHECK(choices.targets[i].name == tokens.tokens[i + 1]);
    CHECK(std::abs(choices.targets[i].probability - all[static_cast<size_t>(target)]) <= 1e-12);
    CHECK(std::abs(tokens.values[i + 1] + std::log(all[static_cast<size_t>(target)])) <= 1e-12);
  }
  const double loss = metrics_of(views).at("predictions/loss");
  CHECK(std::abs(loss - inspected->loss(logits)) <= 1e-12);
  expect_error([&] { analyze(*inspected, "predictions", {.position = 8}); }).names("position").value(8).offers(7);
}

TEST_CASE("predictions: a translation has its source, an image its pixels and patches") {
  for (const ModelCase& each : model_cases()) {
    const auto model = make_model(make_settings(each.settings));
    const bool images = dynamic_cast<ImageModel*>(model.get()), pairs = dynamic_cast<TranslationModel*>(model.get());
    if (!images && !pairs) continue;
    CAPTURE(each.described());
    randomize(*model);
    const auto inspected = example_of(*model);
    const std::vector<View> views = analyze(*inspected, "predictions", {});
    if (pairs) {
      CHECK(shown<TokensView>(views, "Source").tokens == inspected->position_labels("encoder"));
      CHECK(shown<TokensView>(views, "Input").tokens[0] == "[begin]");
      continue;
    }
    const auto& image = shown<ImageView>(views, "Input");
    CHECK(largest_difference(image.pixels, inspected->image()) == 0);
    CHECK(image.positions == inspected->position_labels(""));
    CHECK(shown<ChoicesView>(views, "Most likely classes").targets[0].name == "shirt");
  }
}
