// Normalization curves against their formulas.
#include <algorithm>

#include "engine/ops/ops.h"
#include "tests/support/inspected_examples.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

const char* const title = "Input-output curves of normalizations";

Tensor input_of(const InspectedExample& inspected, const std::string& path) {
  for (const Captured& captured : capture(inspected, "input"))
    if (captured.path == path) return captured.value;
  FAIL("no input of ", path);
  return {};
}

}  // namespace

TEST_CASE("normalization_curves: dyt is tanh of alpha x, before its weight and bias") {
  const auto model = small_gpt({{"normalization", "dyt(alpha=0.8)"}, {"final_normalization", "layer"}});
  const auto inspected = example_of(*model);
  const std::vector<View> views = analyze(*inspected, "normalization_curves", {});
  const auto& table = shown<TableView>(views, title);
  REQUIRE(table.rows.size() == 5);
  REQUIRE(table.columns.back() == "saturated");
  for (size_t i = 0; i < 5; ++i) {
    const std::vector<std::string>& row = table.rows[i];
    CAPTURE(row[0]);
    CHECK(row[1] == (i < 4 ? "dyt" : "layer"));
    const std::vector<double> x = input_of(*inspected, row[0]).to_vector();
    double mean = 0, square = 0;
    for (const double each : x) mean += each / static_cast<double>(x.size());
    for (const double each : x) square += (each - mean) * (each - mean) / static_cast<double>(x.size());
    CHECK(std::stod(row[2]) == doctest::Approx(1 / std::sqrt(square)).epsilon(1e-3));
    const LineView::Line& line = shown<LineView>(views, "normalization_curves/means").lines[i];
    if (i == 4) {
      CHECK(row[6] == "-");
      CHECK(row[7] == "-");
      continue;
    }
    const double alpha = parameter_of(*model, row[0] + ".alpha").item();
    CHECK(std::stod(row[4]) > 0.9999);                                                     // close to tanh
    CHECK(std::abs(std::stod(row[5])) == doctest::Approx(std::abs(alpha)).epsilon(0.01));  // with slope alpha
    CHECK(std::stod(row[6]) == doctest::Approx(alpha).epsilon(1e-3));
    const auto saturated = std::count_if(x.begin(), x.end(), [&](double each) { return std::abs(alpha * each) > 2; });
    CHECK(std::stod(row[7]) ==
          doctest::Approx(static_cast<double>(saturated) / static_cast<double>(x.size())).epsilon(1e-2));
    const double step = line.x.size() > 1 ? line.x[1] - line.x[0] : 0;
    for (size_t k = 0; k < line.x.size(); ++k)  // within half a bin, where the slope is alpha at most
      CHECK(std::abs(line.y[k] - std::tanh(alpha * line.x[k])) <= std::abs(alpha) * step / 2 + 1e-9);
  }
}

TEST_CASE("normalization_curves: a layer normalization's elements, counted, without its weight and bias") {
  const auto model = small_gpt({});
  const auto inspected = example_of(*model);
  const std::vector<View> views = analyze(*inspected, "normalization_curves", {.layer = 0});
  const auto& table = shown<TableView>(views, title);
  REQUIRE(table.rows.size() == 1);
  CHECK(table.columns.size() == 6);  // no columns for alpha
  CHECK(table.rows[0][0] == "blocks.0.attention_norm");
  double straight = std::stod(table.rows[0][3]);
  CHECK(straight > 0.5);  // each token has its own line
  CHECK(straight < 1);
  const auto& map = shown<MapView>(views, "normalization_curves/blocks.0.attention_norm");
  double elements = 0;
  for (const double lg : map.values.to_vector())
    if (!std::isnan(lg)) elements += std::round(std::pow(10, lg) - 1);
  CHECK(elements == 8 * 16);
  // The outputs of a token have mean 0 and deviation 1, so none exceeds sqrt(16 - 1).
  CHECK(std::abs(std::stod(map.rows[0])) <= std::sqrt(15.0));
  CHECK(std::stod(map.rows[0]) > std::stod(map.rows.back()));
  CHECK(std::stod(map.columns[0]) < std::stod(map.columns.back()));
  // The fraction that a straight line explains, computed directly.
  const Tensor x = input_of(*inspected, "blocks.0.attention_norm").reshape(Shape{8, 16});
  const Tensor centred = x - mean(x, {-1}, true), y = centred / sqrt(mean(centred * centred, {-1}, true) + 1e-5);
  const Tensor u = x - mean(x), v = y - mean(y);
  const double uv = sum(u * v).item(), uu = sum(u * u).item(), vv = sum(v * v).item();
  CHECK(straight == doctest::Approx(uv * uv / (uu * vv)).epsilon(1e-3));
}

TEST_CASE("normalization_curves: a fixed alpha is marked as fixed, and other modules have no curve") {
  const auto fixed = small_gpt({{"normalization", "dynamic(tanh, learn_alpha=no)"}, {"final_normalization", "none"}});
  const std::vector<View> views = analyze(*example_of(*fixed), "normalization_curves", {});
  CHECK(shown<TableView>(views, title).rows[0][6] == "fixed");
  CHECK(shown<TableView>(views, title).rows.size() == 4);
  const auto none = small_gpt({{"normalization", "none"}});
  CHECK(analyze(*example_of(*none), "normalization_curves", {}).empty());
}
