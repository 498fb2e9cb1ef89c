// Top activations of units and their direct effect on logits (promotes), against their weights.
#include <algorithm>

#include "engine/ops/ops.h"
#include "engine/types/format.h"
#include "models/inspection/base/targets.h"
#include "models/inspection/base/units.h"
#include "tests/support/errors.h"
#include "tests/support/inspected_examples.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

// Checks the bars of a unit's promoted logits, one for each choice.
void check_promoted(const std::vector<View>& views, const std::string& unit, const Tensor& rises,
                    const InspectedExample& inspected) {
  const auto& bars = shown<BarView>(views, unit + ": promoted logits").bars;
  const std::vector<double> plain = rises.to_vector();
  REQUIRE(bars.size() == plain.size());
  for (const BarView::Bar& bar : bars) {
    CAPTURE(bar.name);
    double nearest = INFINITY;
    for (size_t target_name = 0; target_name < plain.size(); ++target_name)
      if (inspected.target_name(static_cast<int32_t>(target_name)) == bar.name)
        nearest = std::min(nearest, std::abs(plain[target_name] - bar.value));
    CHECK(nearest <= 1e-9);
  }
}
Tensor hidden_of(const InspectedExample& inspected, int64_t layer) {  // (positions, units)
  const Tensor value = capture(inspected, "hidden")[static_cast<size_t>(layer)].value;
  return value.reshape(Shape{value.shape().rows(), value.size(-1)});
}
std::vector<double> column(const Tensor& matrix, int64_t at) { return transpose(matrix)[at].to_vector(); }

}  // namespace

TEST_CASE("neurons: a unit's promoted logits are its activation times W_head times its column of W_out") {
  for (const char* gain : {"1", "learned(-0.5)"}) {
    const auto model =
        small_gpt({{"feed_forward", "dense(relu)"}, {"final_normalization", "none"}, {"residual_gain", gain}});
    const auto inspected = example_of(*model);
    const Tensor hidden = hidden_of(*inspected, 1);
    const std::vector<double> of_unit = column(hidden, 7);
    const auto at = std::max_element(of_unit.begin(), of_unit.end());
    REQUIRE(*at > 0);
    const std::vector<View> views = analyze(*inspected, "neurons", {.layer = 1, .slot = 7, .top = 9});
    Tensor out = transpose(parameter_of(*model, "blocks.1.feed_forward.output.weight"))[7] * *at;
    if (std::string(gain) != "1") out = out * parameter_of(*model, "blocks.1.feed_forward_gain").item();
    const Tensor rises = matmul(out.reshape(Shape{1, 16}), parameter_of(*model, "token_embedding.weight"), {.b = true});
    check_promoted(views, "blocks.1.feed_forward unit 7", rises, *inspected);
    const auto& table = shown<TableView>(views, "blocks.1.feed_forward unit 7");
    CHECK(table.rows[0][0] == significant(*at, 4));
    CHECK(table.rows[0][1] == std::to_string(at - of_unit.begin()));
    CHECK(table.rows.size() ==
          static_cast<size_t>(std::count_if(of_unit.begin(), of_unit.end(), [](double x) { return x > 0; })));
  }
}

TEST_CASE("neurons: a persistent slot's promoted logits go through its head's columns of W_o") {
  const auto model = small_gpt({{"attention", "softmax(persistent=slots(3, scaled=no))"},
                                {"feed_forward", "none"},
                                {"final_normalization", "none"}});
  const auto inspected = example_of(*model);
  const std::vector<View> views = analyze(*inspected, "neurons", {.layer = 0, .slot = 4, .top = 9});  // head 1 slot 1
  const Tensor weights = capture(*inspected, "weights")[0].value;                                     // (1, 2, 8, 11)
  const std::vector<double> of_slot = column(weights[0][1], 8 + 1);
  const double largest = *std::max_element(of_slot.begin(), of_slot.end());
  const Tensor value = parameter_of(*model, "blocks.0.attention.slots.value")[1][1].reshape(Shape{1, 8});
  const Tensor head_output_weight =
      slice(parameter_of(*model, "blocks.0.attention.output.weight"), 1, 8, 16);  // (16, 8)
  const Tensor rises = matmul(matmul(value * largest, head_output_weight, {.b = true}),
                              parameter_of(*model, "token_embedding.weight"), {.b = true});
  check_promoted(views, "blocks.0.attention head 1 slot 1", rises, *inspected);
  CHECK(shown<TableView>(views, "Concentration of the activations").rows[0][1] == "6");
}

TEST_CASE("neurons: with a final normalization, promoted logits are the changes of the logits") {
  const auto model = small_gpt({{"feed_forward", "gated(silu)"}});
  const auto inspected = example_of(*model);
  const std::vector<double> of_unit = column(hidden_of(*inspected, 0), 3);
  const auto at =
      std::max_element(of_unit.begin(), of_unit.end(), [](double a, double b) { return std::abs(a) < std::abs(b); });
  const Tensor last = capture(*inspected, "residual").back().value;
  const Tensor out = transpose(parameter_of(*model, "blocks.0.feed_forward.output.weight"))[3] * *at;
  const Tensor moved = run_replaced(*inspected, "blocks.1.feed_forward.residual", last + out);
  check_promoted(analyze(*inspected, "neurons", {.layer = 0, .slot = 3, .top = 9}), "blocks.0.feed_forward unit 3",
                 (moved - inspected->run())[at - of_unit.begin()], *inspected);
}

TEST_CASE("neurons: the number of units with 85 % of the activation, and of units that are always 0") {
  const auto model = small_gpt({{"feed_forward", "memory(relu)"}});
  const auto inspected = example_of(*model), other = example_of(*model, 1);
  for (const bool with_corpus : {false, true}) {
    std::vector<std::vector<double>> rows;
    for (const InspectedExample* each : {inspected.get(), other.get()})
      if (with_corpus || each == inspected.get())
        for (int64_t position = 0; position < 8; ++position) rows.push_back(hidden_of(*each, 1)[position].to_vector());
    double carriers = 0, never = 0;
    for (std::vector<double> row : rows) {
      std::sort(row.rbegin(), row.rend());
      double total = 0, sum = 0;
      for (const double x : row) total += x;
      for (const double x : row)
        if (sum < 0.85 * total) sum += x, ++carriers;
    }
    for (size_t unit = 0; unit < 64; ++unit)
      never += std::all_of(rows.begin(), rows.end(), [&](const auto& row) { return row[unit] == 0; });
    AnalysisSettings settings{.layer = 1};
    if (with_corpus) settings.corpus = {other.get()};
    const std::vector<View> views = analyze(*inspected, "neurons", settings);
    const auto& row = shown<TableView>(views, "Concentration of the activations").rows[0];
    CHECK(row[2] == fixed(carriers / static_cast<double>(rows.size()), 1));
    CHECK(row[4] == fixed(100 * never / 64, 1) + " %");
    const auto& line = shown<LineView>(views, "neurons/mass").lines[0];
    CHECK(line.y.back() == doctest::Approx(1));
    CHECK(line.x.back() == 64);
  }
}

TEST_CASE("neurons: top activations include positions of the corpus, shown in their context") {
  const auto model = small_gpt({{"feed_forward", "dense(relu)"}});
  const auto inspected = example_of(*model, "0 1"), other = example_of(*model, "5 3 8 6 2 2 7 4");
  const Tensor here = hidden_of(*inspected, 0), there = hidden_of(*other, 0);
  int64_t chosen = -1;  // a unit that is larger in the corpus, at position 4
  std::vector<double> of_unit;
  for (int64_t unit = 0; unit < 64 && chosen < 0; ++unit) {
    of_unit = column(there, unit);
    const std::vector<double> own = column(here, unit);
    if (std::max_element(of_unit.begin(), of_unit.end()) - of_unit.begin() == 4 && of_unit[4] > own[0] &&
        of_unit[4] > own[1])
      chosen = unit;
  }
  REQUIRE(chosen >= 0);
  AnalysisSettings settings{.layer = 0, .slot = chosen, .corpus = {other.get()}};
  const std::string name = text("blocks.0.feed_forward unit ", chosen);
  const std::vector<View> views = analyze(*inspected, "neurons", settings);
  const auto& row = shown<TableView>(views, name).rows[0];
  CHECK(row[0] == significant(of_unit[4], 4));
  CHECK(row[1] == "4");
  CHECK(row[2] == "␣5␣3␣8␣6[␣2]␣2␣7␣4");

  // In the table of all units, the first has the largest value of all.
  settings.slot = -1;
  double largest = 0;
  for (const Tensor& hidden : {here, there})
    for (const double value : hidden.to_vector()) largest = std::max(largest, value);
  const std::vector<View> all = analyze(*inspected, "neurons", settings);
  const auto& table = shown<TableView>(all, "blocks.0.feed_forward");
  CHECK(table.rows.size() == 10);
  CHECK(table.rows[0][1] == significant(largest, 4));
  const auto& map = shown<MapView>(all, "neurons/blocks.0.feed_forward");
  REQUIRE(map.rows[0] == table.rows[0][0]);
  CHECK(largest_difference(map.values[0][0], transpose(here)[std::stol(map.rows[0].substr(5))]) == 0);

  const auto deeper = small_gpt({{"layers", "3"}});
  const auto foreign = example_of(*deeper);
  settings.corpus = {foreign.get()};
  expect_error([&] { analyze(*inspected, "neurons", settings); }).names("corpus").offers("one model");
}
