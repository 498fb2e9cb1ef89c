// Attention scores step by step: the steps give the captured score and weight.
#include <doctest/doctest.h>

#include <cmath>

#include "models/inspection/base/attention_cell.h"
#include "models/inspection/base/edits.h"
#include "nn/attentions/base/attention.h"
#include "nn/positions/base/position.h"
#include "tests/support/inspected_examples.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

bool is_row_rule(const std::string& attention) {
  return attention.starts_with("sparsemax") || attention.starts_with("entmax15");
}

// Checks the cells of some queries of every attention and head. Returns their number.
int check_cells(const InspectedExample& example, const std::string& attention) {
  int checked = 0;
  for (const CapturedAttention& each : capture_attentions(example))
    for (int64_t head = 0; head < each.heads(); ++head)
      for (const int64_t query : {each.weights.size(1) / 2, each.weights.size(1) - 1})
        for (int64_t column = 0; column < each.weights.size(2); ++column) {
          const AttentionCell cell = attention_cell(example, each, head, query, column);
          const double weight = each.weights[head][query].to_vector()[static_cast<size_t>(column)];
          CHECK(cell.weight == weight);
          CHECK(cell.visible == (each.visible[head][query].to_vector()[static_cast<size_t>(column)] > 0));
          if (cell.visible) CHECK(std::abs(cell.computed_score() - cell.score) < 1e-12 * (1 + std::abs(cell.score)));
          if (!cell.visible) CHECK(weight == 0);
          if (is_row_rule(attention)) continue;
          CHECK(std::abs(cell.computed_weight() - weight) < 1e-12 * (1 + std::abs(weight)));
          ++checked;
        }
  return checked;
}

}  // namespace

TEST_CASE("attention score: the steps give the captured weight, for every attention and position encoding") {
  std::vector<std::string> attentions = nn::attentions().names();
  for (const char* more : {"softmax(soft_cap=2, temperature=learned(0.7))", "softmax(qk_norm=rms, gate=silu)",
                           "softmax(span=adaptive_span(6, R=4), persistent=3)",
                           "softmax(persistent=slots(3, split=yes))",
                           "pointwise(gelu, alpha=learned(0.6), length=row_index)", "linear(silu, normalize=yes)",
                           "pointwise(softplus, span=dynamic_span(6), persistent=2)", "pointwise(prelu)"})
    attentions.push_back(more);
  std::vector<std::string> positions = nn::positions().names();
  positions.insert(positions.end(), {"relative(form=bias)", "alibi(learned=yes)"});
  int combinations = 0;
  for (const std::string& attention : attentions)
    for (const std::string& position : positions) {
      CAPTURE(attention);
      CAPTURE(position);
      const bool on_scores =
          nn::make_position(parse_spec(position), {.context = 8, .width = 16, .heads = 2})->acts_on_scores();
      if (attention == "gau" || (on_scores && attention.starts_with("linear"))) continue;  // no weights; no scores
      const auto model = small_gpt({{"attention", attention}, {"position", position}});
      const int checked = check_cells(*example_of(*model, "0 1 4 2 2 4"), attention);
      CHECK((checked > 0) == !is_row_rule(attention));
      ++combinations;
    }
  CHECK(combinations > 80);
}

TEST_CASE("attention score: shared keys, cross attention and images") {
  const auto shared = small_gpt({{"kv_heads", "1"}});
  CHECK(check_cells(*example_of(*shared), "softmax") > 0);
  for (const ModelCase& each : model_cases()) {
    if (each.settings[0].second != "vit" && each.settings[0].second != "encoder_decoder") continue;
    const auto model = make_model(make_settings(each.settings));
    nn::convert(*model, Dtype::f64);
    randomize(*model);
    CHECK(check_cells(*example_of(*model), "softmax") > 0);
  }
}

TEST_CASE("attention score: the scores of a row rule's keys bound its threshold") {
  for (const std::string attention : {"sparsemax", "entmax15"}) {
    CAPTURE(attention);
    const auto model = small_gpt({{"attention", attention}});
    const auto inspected = example_of(*model);
    const CapturedAttention captured = capture_attentions(*inspected)[1];
    const AttentionCell cell = attention_cell(*inspected, captured, 1, 7, 0);
    const std::vector<double> weights = captured.weights[1][7].to_vector();
    double threshold = NAN;
    for (size_t j = 0; j < weights.size(); ++j)
      if (weights[j] > 0) {
        const double s = cell.row_scores[j], w = weights[j],
                     here = attention == "sparsemax" ? s - w : s / 2 - std::sqrt(w);
        CHECK((std::isnan(threshold) || std::abs(here - threshold) < 1e-9));
        threshold = here;
      }
    for (size_t j = 0; j < weights.size(); ++j)
      if (weights[j] == 0) CHECK(cell.row_scores[j] * (attention == "sparsemax" ? 1 : 0.5) <= threshold + 1e-12);
  }
}

TEST_CASE("attention score: the largest weight of the last query is shown, or the cell that is chosen") {
  const auto model = small_gpt({{"attention", "softmax(persistent=2)"}, {"position", "alibi"}});
  const auto inspected = example_of(*model);
  double largest = 0;
  std::string expected;
  for (const CapturedAttention& each : capture_attentions(*inspected))
    for (int64_t head = 0; head < 2; ++head) {
      const std::vector<double> row = each.weights[head][7].to_vector();
      for (size_t j = 0; j < row.size(); ++j)
        if (row[j] > largest)
          largest = row[j], expected = text(each.path, " head ", head, ", query 7 '␣0', ",
                                            j < 8 ? text("key ", j, " '", each.columns[j], "'") : each.columns[j]);
    }
  const std::vector<View> views = analyze(*inspected, "attention_score", {});
  REQUIRE(views.size() == 3);
  CHECK(views[0].title == expected);
  const AnalysisSettings chosen{.layer = 1, .head = 0, .position = 5, .key = 2, .top = 3};
  const std::vector<View> of_cell = analyze(*inspected, "attention_score", chosen);
  CHECK(of_cell[0].title == "blocks.1.attention head 0, query 5 '␣4', key 2 '␣4'");
  const AttentionCell cell = attention_cell(*inspected, capture_attentions(*inspected)[1], 0, 5, 2);
  const auto& steps = std::get<TableView>(of_cell[0].data).rows;
  std::vector<std::string> names;
  for (const auto& row : steps) names.push_back(row[0]);
  CHECK(names == std::vector<std::string>{"<q, k>", "scaled", "position", "score", "mask", "largest score",
                                          "exp(score - largest)", "total", "weight"});
  CHECK(std::stod(steps.back()[1]) == doctest::Approx(cell.weight).epsilon(1e-4));
  CHECK(steps[4][2] == "8 of 10 keys and slots are visible");
  const auto& channels = std::get<TableView>(of_cell[1].data).rows;
  REQUIRE(channels.size() == 4);
  double total = 0;
  for (const auto& row : channels) total += std::stod(row[3]);
  CHECK(total == doctest::Approx(cell.product).epsilon(1e-3));
  CHECK(std::get<MapView>(of_cell[2].data).values.shape() == Shape{1, 3, 8});
  const std::vector<View> hidden = analyze(*inspected, "attention_score", {.position = 2, .key = 6});
  REQUIRE(hidden.size() == 1);
  CHECK(std::get<TableView>(hidden[0].data).rows.size() == 2);
  const auto refused = [&](const AnalysisSettings& s) {
    return expect_error([&] { analyze(*inspected, "attention_score", s); });
  };
  refused({.key = 10}).names("--key").value(10).offers(7).offers(9);
  refused({.position = 8}).names("--position").value(8).offers(7);
  refused({.head = 2}).names("head").value(2).offers(1);
  refused({.layer = 2}).names("layer").value(2).offers(1);
}

TEST_CASE("attention score: the score and the weight are those that the model uses, also under edits") {
  const auto model = small_gpt({});
  const auto inspected = example_of(*model);
  const auto value_of = [&](const std::string& edits, const std::string& step, const std::string& note) {
    Edits all(edits, *model);
    all.begin();
    const std::vector<View> views =
        analyze(*inspected, "attention_score", {.layer = 0, .head = 1, .position = 5, .key = 3});
    for (const auto& row : std::get<TableView>(views[0].data).rows)
      if (row[0] == step) {
        CHECK(row[2] == note);
        return std::stod(row[1]);
      }
    FAIL("no such step");
    return 0.0;
  };
  const std::string weights = "blocks.0.attention.weights", edited = "changed by an edit";
  const double plain = value_of("", "weight", "");
  CHECK(value_of(weights + "*2", "weight", edited) == doctest::Approx(2 * plain).epsilon(1e-4));
  CHECK(value_of(weights + "*2", "computed weight", "of the steps before") == plain);
  CHECK(value_of("blocks.0.attention.1.key3*0", "weight", edited) == 0);
  CHECK(value_of("blocks.0.attention.scores=0.5", "score", edited) == 0.5);
  CHECK(value_of("blocks.0.attention.scores=0.5", "weight", "") == doctest::Approx(1.0 / 6).epsilon(1e-4));
}
