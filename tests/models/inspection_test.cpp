// All analyses on every model, and errors of their settings.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "models/inspection/base/normalizations.h"
#include "tests/support/inspected_examples.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

bool has_infinite(const std::vector<double>& all) {
  return std::any_of(all.begin(), all.end(), [](double x) { return std::isinf(x); });
}
// Checks that the sizes of a view agree and its values are numbers, or NaN if there is none.
void check_whole(const View& view) {
  CAPTURE(view.title);
  CHECK_FALSE(view.group.empty());
  CHECK(view.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_./") == std::string::npos);
  if (const auto* const map = std::get_if<MapView>(&view.data)) {
    REQUIRE(map->values.shape().rank() == 3);
    CHECK(map->values.size(1) == static_cast<int64_t>(map->rows.size()));
    CHECK(map->values.size(2) == static_cast<int64_t>(map->columns.size()));
    const std::vector<double> all = map->values.to_vector();
    CHECK_FALSE(has_infinite(all));
    if (view.name.find("span") == std::string::npos)
      CHECK(std::any_of(all.begin(), all.end(), [](double x) { return !std::isnan(x); }));
  } else if (const auto* const table = std::get_if<TableView>(&view.data)) {
    CHECK(table->columns.size() == table->alignment.size());
    for (const auto& row : table->rows) CHECK(row.size() == table->columns.size());
  } else if (const auto* const bars = std::get_if<BarView>(&view.data)) {
    for (const BarView::Bar& bar : bars->bars) CHECK(std::isfinite(bar.value));
  } else if (const auto* const lens = std::get_if<LensView>(&view.data)) {
    const size_t cells = lens->rows.size() * lens->columns.size();
    CHECK(lens->words.size() == cells);
    CHECK(lens->targets.size() == lens->columns.size());
    for (const double p : lens->probability.to_vector()) CHECK((p > 0 && p <= 1 + 1e-6));
    for (const Tensor& each : {lens->probability, lens->log_probability, lens->rank})
      CHECK(each.numel() == static_cast<int64_t>(cells));
  } else if (const auto* const tokens = std::get_if<TokensView>(&view.data)) {
    CHECK(!tokens->tokens.empty());
    CHECK((tokens->values.empty() || tokens->values.size() == tokens->tokens.size()));
    CHECK_FALSE(has_infinite(tokens->values));
  } else if (const auto* const choices = std::get_if<ChoicesView>(&view.data)) {
    CHECK(choices->choices.size() == choices->positions.size());
    CHECK(choices->targets.size() == choices->positions.size());
    for (const auto& each : choices->choices) CHECK(each.size() == choices->choices[0].size());
  } else if (const auto* const image = std::get_if<ImageView>(&view.data)) {
    CHECK(image->pixels.shape().rank() == 3);
  } else if (const auto* const tree = std::get_if<ComponentsView>(&view.data)) {
    std::set<std::string> paths;
    for (const auto& each : tree->components) CHECK(paths.insert(each.path).second);
    CHECK(paths.contains(""));
  } else {
    for (const LineView::Line& line : std::get<LineView>(view.data).lines) {
      CHECK(line.x.size() == line.y.size());
      for (const double y : line.y) CHECK(std::isfinite(y));
    }
  }
}

}  // namespace

TEST_CASE("analysis: wrong arguments have error messages") {
  const auto model = small_gpt({}), another = small_gpt({});
  const auto inspected = example_of(*model, "0 1 4 2"), longer = example_of(*model, "0 1 5 2 2"),
             stranger = example_of(*another, "0 1 4 3"), same = example_of(*model, "0 1 4 2");
  const auto refused = [&](const char* name, const AnalysisSettings& settings) {
    return expect_error([&] { analyze(*inspected, name, settings); });
  };
  refused("ablation", {.patch_from = longer.get()}).value(4).value(5).names("embedding").offers("as many tokens");
  refused("ablation", {.patch_from = stranger.get()}).names("patching").offers("one model");
  refused("ablation", {.position = 3, .patch_from = same.get()})
      .names("position")
      .value(3)
      .offers("earlier")
      .offers("longer");
  refused("logit_lens", {.position = 4}).names("position").value(4).offers(0).offers(3);
  refused("ablation", {.layer = 2}).names("layer").value(2).names("attention").offers(0).offers(1);
  refused("ablation", {.head = 2}).names("head").value(2).names("blocks.0.attention").offers(0).offers(1);
  refused("neurons", {.slot = 64}).names("slot").value(64).names("blocks.0.feed_forward").offers(0).offers(63);
}

TEST_CASE("analysis: a bf16 model is accepted") {
  const auto model = small_gpt({{"attention", "softmax(persistent=2)"}}, Dtype::bf16);
  const auto inspected = example_of(*model, 0), patch_from = example_of(*model, 1);
  const std::vector<View> views = analyze(*inspected, "all", {.patch_from = patch_from.get()});
  for (const View& view : views) check_whole(view);
  const std::vector<double> of_embedding = row_of(shown<MapView>(views, "ablation/patched_embedding"), "embedding");
  CHECK(of_embedding.back() == doctest::Approx(1));
  CHECK(find_view(views, "logit_lens/contribution"));  // rounding does not hide that the stream is a sum
}

TEST_CASE("analysis: every analysis accepts every model; values are finite, missing components contribute 0") {
  for (const ModelCase& each : model_cases()) {
    CAPTURE(each.described());
    const auto model = make_model(make_settings(each.settings));
    randomize(*model);
    const auto inspected = example_of(*model, 0), patch_from = example_of(*model, 1);
    const std::vector<View> views =
        analyze(*inspected, "all", {.patch_from = patch_from.get(), .corpus = {inspected.get(), patch_from.get()}});
    std::set<std::string> groups;
    for (const View& view : views) check_whole(view), groups.insert(view.group);
    std::set<std::string> shows;
    {
      const Hooks hooks({"*"}, [&](const std::string& name, const Tensor&) {
        shows.insert(name.substr(name.rfind('.') == std::string::npos ? 0 : name.rfind('.') + 1));
      });
      inspected->run();
    }
    CHECK(groups.contains("Predictions"));
    CHECK(groups.contains("Attention") == shows.contains("weights"));
    CHECK(groups.contains("Logit lens") == shows.contains("embedding"));
    for (const char* group : {"Ablation", "Logit attribution", "Gradient times input"})
      CHECK(groups.contains(group) == shows.contains("embedding"));
    CHECK(groups.contains("Attention score") == shows.contains("weights"));
    CHECK(groups.contains("Head patching") == shows.contains("head_output"));
    CHECK(groups.contains("Normalization curves") == !normalizations_of(*model).empty());
    const bool has_slots = each.described().find("persistent") != std::string::npos;
    CHECK(groups.contains("Neurons") == (shows.contains("hidden") || has_slots));
    CHECK((find_view(views, "ablation/heads") != nullptr) == shows.contains("head_output"));
    // One unit, one position, one head: the shorter views.
    AnalysisSettings one{.layer = 0, .head = 0, .slot = 1, .position = 0, .top = 3};
    if (!groups.contains("Attention")) one.head = -1;
    const std::string some = "logit_lens, ablation, neurons, normalization_curves, attention_score";
    for (const View& view : analyze(*inspected, some, one))
      check_whole(view);
  }
}
