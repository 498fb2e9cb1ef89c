// The logit lens and direct contributions against plain computations.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/ops/ops.h"
#include "models/inspection/base/residual_stream.h"
#include "models/inspection/base/targets.h"
#include "nn/normalizations/base/normalization.h"
#include "tests/support/inspected_examples.h"
#include "tests/support/random_tensors.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

// Returns the values that hooks capture under these exact names.
std::map<std::string, Tensor> captured_by(const InspectedExample& inspected, const std::vector<std::string>& names) {
  std::map<std::string, Tensor> all;
  const Hooks hooks(names, [&](const std::string& name, const Tensor& value) { all[name] = value; });
  inspected.run();
  hooks.check_all_matched();
  return all;
}
// Returns the values of this row of a lens.
std::vector<double> row_of(const LensView& lens, const Tensor& values, const std::string& name) {
  return testing::row_of({.quantity = "", .rows = lens.rows, .columns = lens.columns, .values = values}, name);
}
const std::vector<std::string> sublayers = {"blocks.0.attention", "blocks.0.feed_forward", "blocks.1.attention",
                                            "blocks.1.feed_forward"};

}  // namespace

TEST_CASE("logit lens: the prediction from the last state equals the model's output, for every model class") {
  int lenses = 0;
  for (const ModelCase& each : model_cases()) {
    CAPTURE(each.described());
    const auto model = make_model(make_settings(each.settings));
    randomize(*model);
    const auto inspected = example_of(*model);
    const std::vector<ResidualStream> streams = observe_streams(*inspected).streams;
    const std::vector<View> views = analyze(*inspected, "logit_lens", {});
    CHECK(streams.empty() == views.empty());
    if (streams.empty()) continue;
    ++lenses;
    const Tensor logits = inspected->run();
    CHECK(largest_difference(logits_of(*inspected, streams.back(), streams.back().last().value), logits) == 0);
    const auto& lens = shown<LensView>(views, "logit_lens");
    const Targets targets = targets_of(*inspected, logits);
    const std::vector<double> plain = log_probabilities(logits, targets.by_row),
                              last = row_of(lens, lens.log_probability, lens.rows.back()),
                              tops = row_of(lens, lens.probability, lens.rows.back()),
                              ranks = row_of(lens, lens.rank, lens.rows.back());
    REQUIRE(plain.size() == last.size());
    for (size_t i = 0; i < plain.size(); ++i) {
      CAPTURE(i);
      CHECK(std::isnan(plain[i]) == std::isnan(last[i]));
      const std::vector<double> z = logits[static_cast<int64_t>(i)].to_vector();
      const int32_t first = most_likely(z);
      CHECK(lens.words[lens.words.size() - plain.size() + i] == inspected->target_name(first));
      CHECK(std::abs(tops[i] - std::exp(log_probability(z, first, first))) <= 1e-6);
      CHECK(lens.targets[i].empty() == std::isnan(plain[i]));
      if (std::isnan(plain[i])) continue;
      CHECK(std::abs(plain[i] - last[i]) <= 1e-6);
      CHECK(ranks[i] == rank_of(z, targets.by_row[i]));
      CHECK(lens.targets[i] == inspected->target_name(targets.by_row[i]));
    }
  }
  CHECK(lenses > 25);
}

TEST_CASE("logit lens: a state goes through the model's own normalization and head, which the view names") {
  for (const std::string last : {"layer", "none"}) {
    const auto model = small_gpt({{"final_normalization", last}});
    const auto inspected = example_of(*model, "0 1 4 2 2 4 1 0");
    const std::vector<View> views = analyze(*inspected, "logit_lens", {.position = 2});
    Tensor state = captured_by(*inspected, {"embedding"}).at("embedding").reshape(Shape{8, 16});
    if (last == "layer")
      state = nn::layer_norm(state, parameter_of(*model, "norm.weight"), parameter_of(*model, "norm.bias"));
    const Tensor logits = matmul(state, parameter_of(*model, "token_embedding.weight"), {.b = true});
    const Tensor spread = logits - log(sum(exp(logits), {-1}, true));
    const auto& lens = shown<LensView>(views, "logit_lens");
    const std::vector<double> of_embedding = row_of(lens, lens.log_probability, "embedding");
    CHECK(std::abs(of_embedding[2] - spread[2].to_vector()[2]) <= 1e-9);  // the token after position 2 is 2
    CHECK(std::isnan(of_embedding[7]));
    const std::string caption = find_view(views, "logit_lens")->caption;
    Message(caption).names(last == "none" ? "no normalization" : "norm (layer)");

    const auto& table = shown<TableView>(views, "Predictions at position 2, '␣4'");
    REQUIRE(table.rows.size() == 5);
    const std::vector<double> z = logits[2].to_vector();
    CHECK(table.rows[0][0] == "embedding");
    CHECK(table.rows[0][1] == inspected->target_name(most_likely(z)));
    CHECK(table.rows[0][3] ==
          std::to_string(1 + std::count_if(z.begin(), z.end(), [&](double x) { return x > z[2]; })));
  }
}

TEST_CASE("logit_lens: ln p is that of a plain sum for rows of any length; a row of NaN has a top token in range") {
  for (const int64_t n : {1, 7, 8, 63, 64, 65, 4097, 50257}) {
    CAPTURE(n);
    const std::vector<double> z = (random_tensor({n}, 3) * 30).to_vector();
    const double top = *std::max_element(z.begin(), z.end());
    long double total = 0;
    for (const double x : z) total += std::exp(static_cast<long double>(x - top));
    const int32_t first = most_likely(z);
    CHECK(z[static_cast<size_t>(first)] == top);
    const double exact = z.back() - top - static_cast<double>(std::log(total));
    const double found = log_probability(z, static_cast<int32_t>(n - 1), first);
    CHECK(std::abs(found - exact) <= 1e-13 * std::max(1.0, std::abs(exact)));
  }
  const std::vector<double> diverged(70, NAN);
  CHECK(most_likely(diverged) == 0);
  CHECK(std::isnan(log_probability(diverged, 0, 0)));
}

TEST_CASE("logit_lens: sizes are root mean squares of the residual states and of the added outputs") {
  const auto model = small_gpt({{"residual_gain", "0.5"}}, Dtype::f32);
  const auto inspected = example_of(*model);
  std::vector<std::string> names = {"embedding"};
  for (const std::string& path : sublayers) names.push_back(path + ".residual"), names.push_back(path + ".output");
  const auto captured = captured_by(*inspected, names);
  const std::vector<View> views = analyze(*inspected, "logit_lens", {});
  const auto& lines = shown<LineView>(views, "logit_lens/size").lines;
  REQUIRE(lines.size() == 2);
  const auto size = [](const Tensor& x) {
    double squares = 0;
    for (const double each : x.to_vector()) squares += each * each;
    return std::sqrt(squares / static_cast<double>(x.numel()));
  };
  CHECK(std::abs(lines[0].y[0] - size(captured.at("embedding"))) <= 1e-6);
  for (size_t k = 0; k < sublayers.size(); ++k) {
    CHECK(std::abs(lines[0].y[k + 1] - size(captured.at(sublayers[k] + ".residual"))) <= 1e-6);
    CHECK(std::abs(lines[1].y[k] - 0.5 * size(captured.at(sublayers[k] + ".output"))) <= 1e-6);
  }
}

TEST_CASE("direct contributions: without a final normalization they add up to the logit") {
  const Assignments variants[] = {
      {},
      {{"parallel", "yes"}, {"residual_gain", "learned(0.7)"}},
      {{"feed_forward_divisor", "learned(2)"}, {"feed_forward_residual", "learned(1.5)"}, {"head_bias", "yes"}}};
  for (const Assignments& settings : variants)
    for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
      Assignments all = settings;
      all.emplace_back("final_normalization", "none");
      const auto model = small_gpt(all, dtype);
      const auto inspected = example_of(*model);
      const Tensor logits = inspected->run();
      const std::vector<View> views = analyze(*inspected, "logit_lens", {});
      const auto& map = shown<MapView>(views, "logit_lens/contribution");
      CHECK(map.rows.size() == (settings.size() == 3 ? 6 : 5));  // with the head's bias
      const Tensor total = sum(map.values, {1});
      for (size_t position = 0; position < 7; ++position) {
        const double logit =
            logits[static_cast<int64_t>(position)].to_vector()[static_cast<size_t>(inspected->targets()[position])];
        CHECK(std::abs(total.to_vector()[position] - logit) <= (dtype == Dtype::f32 ? 1e-5 : 1e-12));
      }
      CHECK(std::isnan(total.to_vector()[7]));
    }
}

TEST_CASE("direct contributions: the loss of the logit if a sublayer's output is removed from the last state") {
  const auto model = small_gpt({{"residual_gain", "0.5"}});
  const auto inspected = example_of(*model);
  const auto captured = captured_by(*inspected, {"blocks.0.attention.output", "blocks.1.feed_forward.residual"});
  const auto end = [&](const Tensor& state) {
    return matmul(nn::layer_norm(state, parameter_of(*model, "norm.weight"), parameter_of(*model, "norm.bias")),
                  parameter_of(*model, "token_embedding.weight"), {.b = true})
        .reshape(Shape{8, 9});
  };
  const Tensor last = captured.at("blocks.1.feed_forward.residual");
  const Tensor lost = end(last) - end(last - captured.at("blocks.0.attention.output") * 0.5);
  const std::vector<View> views = analyze(*inspected, "logit_lens", {});
  const std::vector<double> row = row_of(shown<MapView>(views, "logit_lens/contribution"), "blocks.0.attention");
  double total = 0;
  for (size_t position = 0; position < 7; ++position) {
    const double plain =
        lost[static_cast<int64_t>(position)].to_vector()[static_cast<size_t>(inspected->targets()[position])];
    CHECK(std::abs(row[position] - plain) <= 1e-9);
    total += plain / 7;
  }
  CHECK(std::abs(bar_of(shown<BarView>(views, "Direct contribution to the logit of the target"), "blocks.0.attention") -
                 total) <= 1e-9);
}

TEST_CASE("logit_lens: with normalizations on the residual stream, the view states that contributions do not exist") {
  const auto model = small_gpt({{"norm_place", "post"}});
  const std::vector<View> views = analyze(*example_of(*model), "logit_lens", {});
  CHECK_FALSE(find_view(views, "logit_lens/contribution"));
  Message(find_view(views, "Size of the residual stream")->caption).names("none").value("direct contribution");
  const auto without = small_gpt({{"norm_place", "post"}, {"normalization", "none"}, {"final_normalization", "none"}});
  CHECK(find_view(analyze(*example_of(*without), "logit_lens", {}),
                  "logit_lens/contribution"));  // the stream is a sum again
}
