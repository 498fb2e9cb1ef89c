// Ablation and patching against plain computations.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "engine/ops/ops.h"
#include "engine/types/format.h"
#include "models/inspection/base/edited_run.h"
#include "models/inspection/base/residual_stream.h"
#include "models/inspection/base/targets.h"
#include "tests/support/inspected_examples.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

TEST_CASE("ablation: the loss without a head equals the loss without its columns of W_o") {
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
            loss_of(run_edited(*inspected, {{.hook = "blocks.0.attention.output"}}), inspected->targets()) -
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

TEST_CASE("patching: patching all positions of the embedding restores the target fully, equal states restore nothing") {
  const auto model = small_gpt({});
  const auto inspected = example_of(*model, "0 1 4 2 2 4 1 0"), patch_from = example_of(*model, "0 1 5 2 2 4 1 3");
  const std::vector<View> views = analyze(*inspected, "ablation", {.position = 6, .patch_from = patch_from.get()});
  const auto& map = shown<MapView>(views, "ablation/patched_embedding");
  CHECK(map.marked == std::vector<size_t>{2, 7});
  CHECK(map.has_sign);
  CHECK(map.columns ==
        InspectedExample::Labels{"␣0", "␣1", "␣4|␣5", "␣2", "␣2", "␣4", "␣1", "␣0|␣3", "all"});
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
  Message(drawn->caption).names("logit of '").names("at position").value(largest).value("2 (␣4|␣5), 7 (␣0|␣3)");

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

  // Differences of logits are proportional to the parameters of the final normalization.
  double size = max_difference;
  const auto scale_difference = [&](double wanted) {
    for (const char* const path : {"norm.weight", "norm.bias"}) {
      const Tensor parameter = parameter_of(*model, path);
      std::vector<double> numbers = parameter.to_vector();
      for (double& number : numbers) number *= wanted / size;
      parameter.copy_from(Tensor::from(parameter.shape(), numbers, Dtype::f64));
    }
    size = wanted;
  };
  scale_difference(0.099);
  Message(nothing_of(*patch_from, -1)).names("position " + std::to_string(largest)).value("0.1");
  scale_difference(0.101);
  CHECK(find_view(analyze(*inspected, "ablation", {.patch_from = patch_from.get()}), "ablation/patched_embedding"));
}
