// logit_lens and ablation against plain computations; all analyses on every model.
#include <algorithm>
#include <map>
#include <set>

#include "engine/ops/ops.h"
#include "engine/types/format.h"
#include "models/inspection/base/targets.h"
#include "models/inspection/base/normalizations.h"
#include "models/inspection/base/edited_run.h"
#include "models/inspection/base/residual_stream.h"
#include "nn/normalizations/base/normalization.h"
#include "tests/support/message.h"
#include "tests/support/inspected_examples.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

std::vector<double> row_of(const MapView& map, const std::string& name) {
  const auto at = std::find(map.rows.begin(), map.rows.end(), name);
  REQUIRE(at != map.rows.end());
  return map.values[0][at - map.rows.begin()].to_vector();
}
double bar_of(const BarView& bars, const std::string& name) {
  for (const BarView::Bar& bar : bars.bars)
    if (bar.name == name) return bar.value;
  FAIL("no bar ", name);
  return NAN;
}
// Returns the values that hooks capture under these exact names.
std::map<std::string, Tensor> captured_by(const InspectedExample& inspected, const std::vector<std::string>& names) {
  std::map<std::string, Tensor> all;
  const Hooks hooks(names, [&](const std::string& name, const Tensor& value) { all[name] = value; });
  inspected.run();
  hooks.check_all_matched();
  return all;
}
const std::vector<std::string> sublayers = {"blocks.0.attention", "blocks.0.feed_forward", "blocks.1.attention",
                                            "blocks.1.feed_forward"};

}  // namespace

TEST_CASE("the lens of the last state is the model's own answer, of every class of models") {
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
    const auto& map = shown<MapView>(views, "logit_lens/log_probability");
    const Targets targets = targets_of(*inspected, logits);
    const std::vector<double> plain = log_probabilities(logits, targets.of_rows), last = row_of(map, map.rows.back());
    REQUIRE(plain.size() == last.size());
    for (size_t i = 0; i < plain.size(); ++i) {
      CAPTURE(i);
      CHECK(std::isnan(plain[i]) == std::isnan(last[i]));
      if (!std::isnan(plain[i])) CHECK(std::abs(plain[i] - last[i]) <= 1e-6);
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
    const std::vector<double> of_embedding = row_of(shown<MapView>(views, "logit_lens/log_probability"), "embedding");
    CHECK(std::abs(of_embedding[2] - spread[2].to_vector()[2]) <= 1e-9);  // the token after position 2 is 2
    CHECK(std::isnan(of_embedding[7]));
    const std::string caption = find_view(views, "logit_lens/log_probability")->caption;
    Message(caption).names(last == "none" ? "no normalization" : "norm (layer)");

    const auto& table = shown<TableView>(views, "Predictions at position 2, ␣4");
    REQUIRE(table.rows.size() == 5);
    const std::vector<double> z = logits[2].to_vector();
    CHECK(table.rows[0][0] == "embedding");
    CHECK(table.rows[0][1] == inspected->target_name(most_likely(z)));
    CHECK(table.rows[0][3] ==
          std::to_string(1 + std::count_if(z.begin(), z.end(), [&](double x) { return x > z[2]; })));
  }
}

TEST_CASE("logit_lens: sizes are root mean squares of what was there and of what was added") {
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

TEST_CASE("direct contributions: without a last normalization they add up to the logit") {
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

TEST_CASE("direct contributions: what the logit loses when a sublayer's words leave the last state") {
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
  CHECK(std::abs(bar_of(shown<BarView>(views, "Direct contribution to the logit of the target"),
                        "blocks.0.attention") -
                 total) <= 1e-9);
}

TEST_CASE("logit_lens: with normalizations on the stream there are no direct contributions, and the view states it") {
  const auto model = small_gpt({{"norm_place", "post"}});
  const std::vector<View> views = analyze(*example_of(*model), "logit_lens", {});
  CHECK_FALSE(find_view(views, "logit_lens/contribution"));
  Message(find_view(views, "Size of the residual stream")->caption).names("none").value("direct contribution");
  const auto without = small_gpt({{"norm_place", "post"}, {"normalization", "none"}, {"final_normalization", "none"}});
  CHECK(find_view(analyze(*example_of(*without), "logit_lens", {}),
                  "logit_lens/contribution"));  // the stream is a sum again
}

TEST_CASE("ablation: the loss without a head is that without its columns of W_o") {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
    const auto model = small_gpt({}, dtype);
    const auto inspected = example_of(*model);
    const double loss = inspected->loss(inspected->run());
    const std::vector<View> views = analyze(*inspected, "ablation", {});
    const auto& map = shown<MapView>(views, "ablation/heads");
    CHECK(map.rows == std::vector<std::string>{"blocks.0.attention", "blocks.1.attention"});
    for (const auto& [layer, head] : {std::pair(0, 0), std::pair(0, 1), std::pair(1, 1)}) {
      const Tensor weight = parameter_of(*model, "blocks." + std::to_string(layer) + ".attention.output.weight");
      const Tensor old = weight.clone();
      const std::vector<double> keep = old.to_vector();
      std::vector<double> zeroed = keep;
      for (size_t i = 0; i < zeroed.size(); ++i)
        if (i % 16 / 8 == static_cast<size_t>(head)) zeroed[i] = 0;
      weight.copy_from(Tensor::from(weight.shape(), zeroed, dtype));
      CHECK(map.values[0][layer].to_vector()[static_cast<size_t>(head)] == inspected->loss(inspected->run()) - loss);
      weight.copy_from(old);
    }
  }
}

TEST_CASE("ablation: the loss without a sublayer, without a hidden unit, without a slot") {
  const auto model = small_gpt({{"attention", "softmax(persistent=slots(3))"}, {"feed_forward", "dense(relu)"}});
  const auto inspected = example_of(*model);
  const double loss = inspected->loss(inspected->run());
  const std::vector<View> views = analyze(*inspected, "ablation", {.top = 1000});
  const auto& table = shown<TableView>(views, "Components with the largest effect on the loss");
  const auto harm = [&](const std::string& what) -> std::string {
    for (const auto& row : table.rows)
      if (row[0] == what) return row[2];
    return "not there";
  };
  const auto loss_with = [&](const std::string& path, const auto& change) {
    const Tensor weight = parameter_of(*model, path), old = weight.clone();
    std::vector<double> numbers = old.to_vector();
    change(numbers);
    weight.copy_from(Tensor::from(weight.shape(), numbers, Dtype::f64));
    const double without = inspected->loss(inspected->run());
    weight.copy_from(old);
    return signed_fixed(without - loss, 4);
  };
  CHECK(harm("blocks.1.feed_forward unit 5") ==
        loss_with("blocks.1.feed_forward.output.weight", [](std::vector<double>& w) {  // (16, 64)
          for (size_t i = 5; i < w.size(); i += 64) w[i] = 0;
        }));
  CHECK(harm("blocks.0.attention head 1 slot 2") ==
        loss_with("blocks.0.attention.slots.value", [](std::vector<double>& v) {  // (3, 2, 8)
          std::fill(v.begin() + (2 * 2 + 1) * 8, v.begin() + (2 * 2 + 2) * 8, 0.0);
        }));
  CHECK(bar_of(shown<BarView>(views, "Loss without each sublayer"), "blocks.0.attention") ==
        doctest::Approx(
            loss_of(run_edited(*inspected, "blocks.0.attention.output",
                               [](const Shape&, std::vector<double>& x) { std::fill(x.begin(), x.end(), 0.0); }),
                    inspected->targets()) -
            loss)
            .epsilon(1e-12));
  CHECK(std::is_sorted(table.rows.begin(), table.rows.end(),
                       [](const auto& a, const auto& b) { return std::stod(a[2]) > std::stod(b[2]); }));
  const std::vector<View> shorter = analyze(*inspected, "ablation", {.top = 3});
  CHECK(shown<TableView>(shorter, "Components with the largest effect on the loss").rows.size() == 3);
}

TEST_CASE("patching: a residual state at its own position leaves the result bit-identical") {
  for (const ModelCase& each : model_cases()) {
    const auto model = make_model(make_settings(each.settings));
    randomize(*model);
    const auto inspected = example_of(*model);
    const Tensor plain = inspected->run();
    for (const ResidualStream& stream : observe_streams(*inspected).streams)
      for (const ResidualState& state : stream.states)
        CHECK(largest_difference(run_replaced(*inspected, state.name, state.value), plain) == 0);
  }
}

TEST_CASE("patching: everything at the embedding restores all, the same states nothing") {
  const auto model = small_gpt({});
  const auto inspected = example_of(*model, "0 1 4 2 2 4 1 0"), patch_from = example_of(*model, "0 1 5 2 2 4 1 3");
  const std::vector<View> views = analyze(*inspected, "ablation", {.position = 6, .patch_from = patch_from.get()});
  const auto& map = shown<MapView>(views, "ablation/patched_embedding");
  CHECK(map.marked == std::vector<size_t>{2, 7});
  CHECK(map.has_sign);
  const InspectedExample::Labels words = {"␣0", "␣1", "␣4|␣5", "␣2", "␣2", "␣4", "␣1", "␣0|␣3", "all"};
  CHECK(map.columns == words);
  CHECK(map.rows.size() == 5);
  for (const std::string& row : map.rows) {
    const std::vector<double> recovered = row_of(map, row);
    CHECK(recovered[0] == 0);  // before the first token that differs
    CHECK(recovered[1] == 0);
    CHECK(recovered[7] == 0);  // after the last position with a target
    CHECK(recovered[8] == doctest::Approx(1).epsilon(1e-9));
  }
  CHECK(row_of(map, "embedding")[2] == doctest::Approx(1).epsilon(1e-9));  // only token 2 differs up to position 6
  const std::vector<double> last = row_of(map, "blocks.1.feed_forward");
  CHECK(last[6] == doctest::Approx(1).epsilon(1e-9));  // position 6 is the measured one
  CHECK(last[2] == 0);

  // One cell by hand: the logit of token 3 minus that of token 0 at position 6.
  const auto measure = [](const Tensor& logits) {
    const std::vector<double> z = logits[6].to_vector();
    return z[3] - z[0];
  };
  // The position with the largest difference among those between, whose targets are equal in both.
  const Tensor of_here = inspected->run(), of_there = patch_from->run();
  const auto difference = [&](int64_t row) {
    const auto target = static_cast<size_t>(inspected->targets()[static_cast<size_t>(row)]);
    return std::abs(of_there[row].to_vector()[target] - of_here[row].to_vector()[target]);
  };
  const int64_t between = std::max({3, 4, 5}, [&](int64_t a, int64_t b) { return difference(a) < difference(b); });
  REQUIRE(difference(between) > 0.1);
  const std::vector<View> earlier =
      analyze(*inspected, "ablation", {.position = between, .patch_from = patch_from.get()});
  const auto& of_position = shown<MapView>(earlier, "ablation/patched_embedding");
  CHECK(row_of(of_position, "blocks.1.feed_forward")[static_cast<size_t>(between)] == doctest::Approx(1).epsilon(1e-9));
  CHECK(row_of(of_position, "embedding")[static_cast<size_t>(between) + 1] == 0);
  const Tensor own = observe_streams(*inspected).streams[0].states[1].value,
               others = observe_streams(*patch_from).streams[0].states[1].value;
  Tensor mixed = own.clone();
  mixed.slice(2, 3).copy_from(others.slice(2, 3));
  const double here = measure(inspected->run()), there = measure(patch_from->run()),
               cell = measure(run_replaced(*inspected, "blocks.0.attention.residual", mixed));
  CHECK(row_of(map, "blocks.0.attention")[2] == doctest::Approx((cell - here) / (there - here)).epsilon(1e-9));
}

TEST_CASE("patching: the position with the largest difference is used, and a small difference is reported as none") {
  const std::string title = "Patching from the other example: no difference to restore";
  const auto model = small_gpt({});
  const auto inspected = example_of(*model, "0 1 4 2 2 4 1 0"), patch_from = example_of(*model, "0 1 5 2 2 4 1 3");
  const Tensor here = inspected->run(), there = patch_from->run();
  int64_t largest = -1;
  double max_difference = 0;
  for (int64_t row = 0; row < 7; ++row) {
    const auto target = [&](const InspectedExample& of) {
      return static_cast<size_t>(of.targets()[static_cast<size_t>(row)]);
    };
    const auto m = [&](const Tensor& logits) {
      const std::vector<double> z = logits[row].to_vector();
      return target(*inspected) == target(*patch_from) ? z[target(*patch_from)]
                                                       : z[target(*patch_from)] - z[target(*inspected)];
    };
    if (const double difference = std::abs(m(there) - m(here)); difference > max_difference)
      max_difference = difference, largest = row;
  }
  REQUIRE(max_difference > 0.1);
  const std::vector<View> views = analyze(*inspected, "ablation", {.patch_from = patch_from.get()});
  const View* const drawn = find_view(views, "ablation/patched_embedding");
  REQUIRE(drawn != nullptr);
  Message(drawn->caption).names("at position").value(largest).value("2 (␣4|␣5), 7 (␣0|␣3)");

  const auto same = example_of(*model, "0 1 4 2 2 4 1 0");
  const auto nothing_of = [&](const InspectedExample& example, int64_t position) {
    const std::vector<View> views = analyze(*inspected, "ablation", {.position = position, .patch_from = &example});
    CHECK_FALSE(find_view(views, "ablation/patched_embedding"));
    for (const View& view : views)
      if (view.title == title) return view.caption;
    return std::string("not said");
  };
  Message(nothing_of(*same, -1)).value("0.1");
  Message(nothing_of(*patch_from, 0)).names("position 0");  // position 0 is before the first token that differs
}

TEST_CASE("analysis: wrong arguments are refused with a message") {
  const auto model = small_gpt({}), another = small_gpt({});
  const auto inspected = example_of(*model, "0 1 4 2"), longer = example_of(*model, "0 1 5 2 2"),
             stranger = example_of(*another, "0 1 4 3"), same = example_of(*model, "0 1 4 2");
  const auto refused = [&](const char* name, const AnalysisSettings& settings) {
    return expect_error([&] { analyze(*inspected, name, settings); });
  };
  refused("ablation", {.patch_from = longer.get()}).value(4).value(5).names("embedding").offers("as many tokens");
  refused("ablation", {.patch_from = stranger.get()}).names("patching").offers("one model");
  refused("ablation", {.position = 3, .patch_from = same.get()})
      .names("place")
      .value(3)
      .offers("earlier")
      .offers("longer");
  refused("logit_lens", {.position = 4}).names("place").value(4).offers(0).offers(3);
  refused("ablation", {.layer = 2}).names("layer").value(2).names("attention").offers(0).offers(1);
  refused("ablation", {.head = 2}).names("head").value(2).names("blocks.0.attention").offers(0).offers(1);
  refused("neurons", {.slot = 64}).names("slot").value(64).names("blocks.0.feed_forward").offers(0).offers(63);
}

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
  } else {
    for (const LineView::Line& line : std::get<LineView>(view.data).lines) {
      CHECK(line.x.size() == line.y.size());
      for (const double y : line.y) CHECK(std::isfinite(y));
    }
  }
}

}  // namespace

TEST_CASE("analysis: a bf16 model is accepted") {
  const auto model = small_gpt({{"attention", "softmax(persistent=2)"}}, Dtype::bf16);
  const auto inspected = example_of(*model, 0), patch_from = example_of(*model, 1);
  const std::vector<View> views = analyze(*inspected, "all", {.patch_from = patch_from.get()});
  for (const View& view : views) check_whole(view);
  const std::vector<double> of_embedding = row_of(shown<MapView>(views, "ablation/patched_embedding"), "embedding");
  CHECK(of_embedding.back() == doctest::Approx(1));
  CHECK(find_view(views, "logit_lens/contribution"));  // rounding does not hide that the stream is a sum
}

TEST_CASE("analysis: every one accepts every model; values are finite, missing components add nothing") {
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
    CHECK(groups.contains("Attention") == shows.contains("weights"));
    CHECK(groups.contains("Logit lens") == shows.contains("embedding"));
    CHECK(groups.contains("Ablation") == shows.contains("embedding"));
    CHECK(groups.contains("Normalization curves") == !normalizations_of(*model).empty());
    const bool has_slots = each.described().find("persistent") != std::string::npos;
    CHECK(groups.contains("Neurons") == (shows.contains("hidden") || has_slots));
    CHECK((find_view(views, "ablation/heads") != nullptr) == shows.contains("head_output"));
    // One unit, one position, one head: the shorter views.
    AnalysisSettings one{.layer = 0, .head = 0, .slot = 1, .position = 0, .top = 3};
    if (!groups.contains("Attention")) one.head = -1;
    for (const View& view : analyze(*inspected, "logit_lens, ablation, neurons, normalization_curves", one))
      check_whole(view);
  }
}
