// The analyses of attention and heads, and the examples that they run on.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/autograd/hooks.h"
#include "engine/ops/ops.h"
#include "models/inspection/base/captured_attention.h"
#include "models/model.h"
#include "models/reports/report_views.h"
#include "models/training/settings.h"
#include "nn/diagnostics/diagnostics.h"
#include "nn/losses/base/loss.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::largest_difference;
using orrery::testing::random_tensor;

namespace {

std::unique_ptr<nn::Module> small_model(Assignments settings) {
  settings.insert(settings.end(), {{"layers", "2"}, {"heads", "2"}, {"width", "16"}});
  auto model = make_model(make_settings(settings));
  nn::initialize(*model, 3);
  return model;
}
std::shared_ptr<const Tokenizer> letters() {
  return make_tokenizer("character", std::function<std::string()>([] { return "abcdefgh \n"; }));
}
std::unique_ptr<nn::Module> small_gpt(const std::string& attention = "softmax") {
  return small_model({{"model", "gpt"}, {"vocabulary", "10"}, {"context", "12"}, {"attention", attention}});
}
std::unique_ptr<InspectedExample> reading(nn::Module& model, const std::string& text) {
  return text_example(dynamic_cast<LanguageModel&>(model), letters(), text);
}
template <class Kind>
const Kind& shown(const std::vector<View>& views, std::string_view title) {
  for (const View& view : views)
    if (view.title == title) return std::get<Kind>(view.data);
  FAIL("there is no view " << title);
  throw std::logic_error(std::string(title));
}
// Returns a cell of the table of heads: a column, and a head of the first attention.
std::string cell(const std::vector<View>& views, const std::string& metric, size_t row) {
  const auto& table = shown<TableView>(views, "Metrics of each head");
  const auto at = std::find(table.columns.begin(), table.columns.end(), metric);
  REQUIRE(at != table.columns.end());
  return table.rows.at(row).at(static_cast<size_t>(at - table.columns.begin()));
}

}  // namespace

TEST_CASE("analysis: a text is shown as its tokens, and its loss is for the next tokens") {
  const auto model = small_gpt();
  const auto inspected = reading(*model, "ab c\nab");
  CHECK(inspected->position_labels("") == InspectedExample::Labels{"a", "b", "␣", "c", "\\n", "a", "b"});
  const Tensor logits = inspected->run();
  REQUIRE(logits.shape() == Shape{7, 10});
  const Tensor targets = Tensor::from(Shape{7}, inspected->targets());
  CHECK(inspected->targets().back() == -1);
  CHECK(std::abs(inspected->loss(logits) - nn::cross_entropy(logits, targets).item()) < 1e-6);
  CHECK(display_token("\xe4") == "\\xe4");
  const auto cut = reading(*model, "abcdefghabcdefgh");  // to the 12 tokens of the context
  CHECK(cut->left_out() == 4);
  CHECK(*cut->tokens() == *reading(*model, "efghabcdefgh")->tokens());
  CHECK(inspected->left_out() == 0);
  expect_error([&] { reading(*model, ""); }).names("text").value("no tokens").offers("--text");
}

TEST_CASE("analysis: weights equal the hook values, head by head") {
  for (const char* attention : {"softmax", "pointwise(relu, alpha=1)", "softmax(persistent=3)"}) {
    CAPTURE(attention);
    const auto model = small_gpt(attention);
    const auto inspected = reading(*model, "abcdefgh");
    std::vector<Tensor> weights, visible;
    {
      const Hooks hooks({"*.weights", "*.visible"}, [&](const std::string& name, const Tensor& w) {
        (name.ends_with("weights") ? weights : visible).push_back(w.clone());
      });
      inspected->run();
    }
    REQUIRE(visible.size() == 2);
    const auto views = analyze(*inspected, "attention", {});
    const auto& map = shown<MapView>(views, "blocks.attention");
    REQUIRE(map.values.size(0) == 4);
    CHECK(map.columns.size() == static_cast<size_t>(weights[0].size(3)));
    for (int64_t layer = 0; layer < 2; ++layer)
      for (int64_t head = 0; head < 2; ++head) {
        const auto at = static_cast<size_t>(layer);
        const std::vector<double> mapped = map.values[2 * layer + head].to_vector(),
                                  w = weights[at][0][head].to_vector(), visibility = visible[at][0][head].to_vector();
        const size_t columns = map.columns.size();
        for (size_t i = 0; i < w.size(); ++i) {
          const bool is_slot = i % columns >= 8, attends = is_slot || i % columns <= i / columns;
          CHECK(visibility[i] == (attends ? 1 : 0));
          CHECK(std::isnan(mapped[i]) == !attends);
          if (attends) CHECK(mapped[i] == w[i]);
        }
      }
    CHECK(map.slots == (map.columns.size() > 8 ? 3 : 0));
    CHECK(map.low == 0);
    CHECK(map.reach.empty());
  }
  const auto model = small_gpt("softmax(persistent=3)");
  const auto inspected = reading(*model, "abc");
  const auto views = analyze(*inspected, "attention", {.layer = 1, .head = 0});
  CHECK(shown<MapView>(views, "blocks.1.attention, head 0").columns ==
        InspectedExample::Labels{"a", "b", "c", "slot 0", "slot 1", "slot 2"});
  const auto refused = [&](const char* name, const AnalysisSettings& settings) {
    return expect_error([&] { analyze(*inspected, name, settings); });
  };
  refused("attention", {.layer = 2}).names("layer").value(2).names("attention").offers(0).offers(1);
  refused("attention", {.head = 2}).names("head").value(2).names("blocks.0.attention").offers(0).offers(1);
  refused("atention", {}).value("atention").offers("'attention'");
}

TEST_CASE("analysis: attention maps have spans, and positions beyond them have no weight") {
  // A fixed span of 3 holds the query's own token, if visible, and two before it. Learned spans
  // begin with the 4 tokens of their ramp.
  for (const auto& each : {std::pair("pointwise(relu, alpha=1, span=fixed(3), attend_to_self=yes)", 2),
                           std::pair("softmax(span=adaptive_span(8, R=4))", 4)}) {
    const auto& attention = each.first;
    const auto& reach = each.second;
    CAPTURE(attention);
    const auto model = small_gpt(attention);
    const auto inspected = reading(*model, "abcdefgh");
    const auto views = analyze(*inspected, "attention", {});
    const auto& map = shown<MapView>(views, "blocks.attention");
    CHECK(map.reach == std::vector<double>(4 * 8, reach));
    const std::vector<double> values = map.values[0].to_vector();
    const bool own = reach == 2;
    for (int row = 0; row < 8; ++row)
      for (int column = 0; column < 8; ++column) {
        const int distance = row - column;
        CHECK(std::isnan(values[static_cast<size_t>(8 * row + column)]) !=
              (distance <= reach && distance >= (own ? 0 : 1)));
      }
    Json sections = Json::array();
    add_views(sections, views);
    CHECK(sections[0]["data"]["maps"][3]["span"] == reach);
    CHECK(sections[0]["data"]["none"] == "not visible");
  }
}

TEST_CASE("analysis: maps of heads have scales from 0 to the metric's maximum") {
  const auto model = small_gpt();
  const auto inspected = reading(*model, "abcdefgh");
  const auto views = analyze(*inspected, "heads", {});
  CHECK(shown<MapView>(views, "entropy").high == doctest::Approx(nn::causal_entropy_ceiling(8)));
  for (const char* metric : {"zeros", "induction", "previous", "first"}) CHECK(shown<MapView>(views, metric).high == 1);
  for (const View& view : views)
    if (const auto* const map = std::get_if<MapView>(&view.data)) {
      CHECK(map->low == 0);
      CHECK(map->axes.second == "head");
    }
}

TEST_CASE("analysis: only the requested heads are returned, with equal values") {
  const auto model = small_gpt();
  const auto inspected = reading(*model, "abcdabcd");
  const auto all = analyze(*inspected, "heads", {}), one = analyze(*inspected, "heads", {.layer = 1, .head = 1});
  const auto& rows = shown<TableView>(all, "Metrics of each head").rows;
  REQUIRE(rows.size() == 4);
  const auto& row = shown<TableView>(one, "Metrics of each head").rows;
  REQUIRE(row.size() == 1);
  CHECK(row[0][0] == "blocks.1.attention");
  CHECK(std::equal(row[0].begin() + 1, row[0].end(), rows[3].begin() + 1));
  const auto &map = shown<MapView>(one, "first"), &whole = shown<MapView>(all, "first");
  CHECK(map.rows == std::vector<std::string>{"blocks.1.attention"});
  CHECK(std::isnan(map.values.to_vector()[0]));
  CHECK(map.values.to_vector()[1] == whole.values.to_vector()[3]);
  double total = 0;
  for (const BarView::Bar& bar : shown<BarView>(one, "Entropies relative to uniform weights").bars) total += bar.value;
  CHECK(total == doctest::Approx(1));
  const auto third = [&] { analyze(*inspected, "heads", {.head = 2}); };
  expect_error(third).names("head").value(2).names("blocks.0.attention").offers(0).offers(1);
}

TEST_CASE("analysis: known weights give known metrics of heads") {
  const auto model = small_gpt();
  const auto inspected = reading(*model, "abcdabcd");
  // Head 0 attends to the previous position, head 1 to the first position and itself, half each.
  const Hooks hooks({"blocks.0.attention.weights"}, Hooks::Replace{[](const std::string&, const Tensor& w) {
                      std::vector<double> all(static_cast<size_t>(w.numel()));
                      const auto n = static_cast<size_t>(w.size(3));
                      for (size_t i = 0; i < n; ++i) {
                        all[i * n + (i > 0 ? i - 1 : 0)] = 1;
                        all[(n + i) * n] += 0.5, all[(n + i) * n + i] += 0.5;
                      }
                      return Tensor::from(w.shape(), all, w.dtype());
                    }});
  const auto views = analyze(*inspected, "heads", {});
  CHECK(cell(views, "previous", 0) == "1.000");
  CHECK(cell(views, "first", 0) == "0.250");     // positions 0 and 1 of 8
  CHECK(cell(views, "distance", 0) == "0.875");  // 0, then seven times 1
  CHECK(cell(views, "distance", 1) == "1.750");  // the mean of i / 2
  CHECK(cell(views, "first", 1) == "0.562");     // position 0 fully, seven others half
  CHECK(cell(views, "induction", 0) == "0.000");
}

TEST_CASE("analysis: a head that attends after its token's earlier occurrence has an induction score of 1") {
  const auto model = small_gpt();
  const auto inspected = reading(*model, "abcdabcd");
  const Hooks hooks({"blocks.1.attention.weights"}, Hooks::Replace{[](const std::string&, const Tensor& w) {
                      std::vector<double> all(static_cast<size_t>(w.numel()));
                      const auto n = static_cast<size_t>(w.size(3)), half = n / 2;
                      for (size_t head = 0; head < 2; ++head)
                        for (size_t i = 0; i < n; ++i) all[(head * n + i) * n + (i >= half ? i - half + 1 : 0)] = 1;
                      return Tensor::from(w.shape(), all, w.dtype());
                    }});
  CHECK(cell(analyze(*inspected, "heads", {}), "induction", 2) == "1.000");
  CHECK(std::stod(cell(analyze(*inspected, "heads", {}), "induction", 0)) < 0.5);
}

TEST_CASE("analysis: entropies, zeros and row sums of heads equal a plain computation") {
  const auto model = small_gpt("pointwise(relu, alpha=1)");
  const auto inspected = reading(*model, "abcdefgh");
  const std::vector<CapturedAttention> all = capture_attentions(*inspected);
  const auto views = analyze(*inspected, "heads", {});
  for (size_t head = 0; head < 2; ++head) {
    const std::vector<double> w = all[0].weights[static_cast<int64_t>(head)].to_vector();
    double sums = 0, zeros = 0, entropies = 0;
    for (size_t i = 0; i < 8; ++i) {
      double sum = 0, zero = 0, entropy = 0;
      for (size_t k = 0; k <= i; ++k) sum += w[i * 8 + k], zero += w[i * 8 + k] == 0;
      for (size_t k = 0; k <= i; ++k)
        if (const double p = w[i * 8 + k] / sum; p > 0) entropy -= p * std::log(p);
      sums += sum / 8, zeros += zero / static_cast<double>(i + 1) / 8, entropies += entropy / 8;
    }
    for (const auto& each :
         {std::pair("heads/entropy", entropies), std::pair("heads/zeros", zeros), std::pair("heads/row_sum", sums)}) {
      const auto& metric = each.first;
      const auto& expected = each.second;
      CAPTURE(metric);
      for (const View& view : views)
        if (view.name == metric)
          CHECK(std::abs(std::get<MapView>(view.data).values.to_vector()[head] - expected) < 1e-6);
    }
    CHECK(std::abs(std::stod(cell(views, "entropy", head)) - entropies) < 1e-3);
  }
}

TEST_CASE("analysis: positions of images and pairs have labels") {
  const auto vit = small_model(
      {{"model", "vit"}, {"image_size", "8"}, {"channels", "1"}, {"classes", "3"}, {"pooling", "class_token"}});
  auto& images = dynamic_cast<ImageModel&>(*vit);
  const Tensor pixels = random_tensor({1, 8, 8, 1}, 1).to(Dtype::f32);
  const auto image = image_example(images, pixels, {"cat", "dog"}, 1);
  CHECK(image->position_labels("") == InspectedExample::Labels{"class", "0,0", "0,1", "1,0", "1,1"});
  CHECK(image->target_name(1) == "dog");
  CHECK(image->target_name(2) == "[2]");  // unnamed; a class name may be a number
  CHECK(image->distance("", 1, 4) == doctest::Approx(4 * std::sqrt(2.0)));
  CHECK(std::isnan(image->distance("", 0, 4)));
  CHECK(analyze(*image, "attention, heads", {}).size() > 3);
  expect_error([&] { image_example(images, pixels, {}, 3); }).names("label").value(3).offers(0).offers(2);

  const auto model = small_model({{"model", "encoder_decoder"}, {"vocabulary", "12"}, {"context", "12"}});
  const auto pair = pair_example(dynamic_cast<TranslationModel&>(*model), letters(), "abc", "de");
  CHECK(pair->position_labels("encoder.0.attention") == InspectedExample::Labels{"a", "b", "c", "[end]"});
  CHECK(pair->position_labels("decoder.0.attention") == InspectedExample::Labels{"[begin]", "d", "e"});
  const std::vector<CapturedAttention> captured = capture_attentions(*pair);
  REQUIRE(captured.size() == 6);
  for (const CapturedAttention& each : captured) {
    CAPTURE(each.path);
    CHECK(each.weights.shape() ==
          Shape{2, static_cast<int64_t>(each.queries.size()), static_cast<int64_t>(each.columns.size())});
  }
  CHECK(analyze(*pair, "attention, heads", {}).size() > 3);
}

TEST_CASE("analysis: every view becomes a section of a report") {
  const auto model = small_gpt();
  const auto inspected = reading(*model, "abcdefgh");
  const auto views = analyze(*inspected, "attention, heads", {});
  Json sections = Json::array();
  add_views(sections, views);
  REQUIRE(sections.size() == views.size());
  CHECK(sections[0]["kind"] == "matrices");
  CHECK(sections[0]["data"]["maps"].size() == 4);
  CHECK(sections[0]["data"]["shape"] == Json({2, 2}));
}
