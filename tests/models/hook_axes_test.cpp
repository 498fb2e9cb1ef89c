// The axes of hook values, and edits of each value of each model: none changes nothing without a word.
#include "models/inspection/base/hook_axes.h"

#include <doctest/doctest.h>

#include <map>

#include "engine/types/usage_error.h"
#include "models/inspection/base/edits.h"
#include "tests/support/inspected_examples.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

using Axes = std::vector<std::string>;

std::map<std::string, Tensor> values_of(const InspectedExample& example) {
  std::map<std::string, Tensor> values;
  const Hooks hooks({"*"}, [&](const std::string& name, const Tensor& value) { values[name] = value.clone(); });
  example.run();
  return values;
}

}  // namespace

TEST_CASE("hook axes: in every model each axis has the size of what it counts") {
  for (const ModelCase& each : model_cases()) {
    CAPTURE(each.described());
    const auto model = randomized(each.settings);
    const auto inspected = example_of(*model);
    for (const auto& each_value : values_of(*inspected)) {
      const std::string& name = each_value.first;
      const Tensor& value = each_value.second;
      CAPTURE(name);
      const Axes axes = hook_axes(name, value.shape(), value.dtype());
      REQUIRE(axes.size() == static_cast<size_t>(value.shape().rank()));
      const std::string path = name.substr(0, name.rfind('.'));
      for (size_t i = 0; i < axes.size(); ++i) {
        const int64_t size = value.size(static_cast<int>(i));
        const auto& positions = is_of_encoder(name) ? inspected->key_labels(path) : inspected->position_labels(path);
        if (axes[i] == "batch") CHECK(size == 1);
        if (axes[i] == "position" && size != 1 && !name.starts_with("encoder.embedding."))  // shared by both sides
          CHECK(size == static_cast<int64_t>(positions.size()));
        if (axes[i] == "key" && size != 1) CHECK(size >= static_cast<int64_t>(inspected->key_labels(path).size()));
        if (axes[i] == "choice") CHECK(size == inspected->run().size(1));
        if (axes[i] == "head") CHECK(size <= 6);
      }
    }
  }
}

TEST_CASE("hook axes: each value has the axes that its head says") {
  const auto axes_of = [](const Assignments& settings, const std::string& name) {
    const auto model = small_gpt(settings);
    const auto values = values_of(*example_of(*model, "0 1 4 2"));
    REQUIRE_MESSAGE(values.contains(name), name);
    return hook_axes(name, values.at(name).shape(), values.at(name).dtype());
  };
  const std::string attention = "blocks.0.attention.", slots = "softmax(persistent=slots(3, split=yes))",
                    spans = "softmax(span=dynamic_span(8, R=4))";
  CHECK(axes_of({}, "input") == Axes{"batch", "position"});
  CHECK(axes_of({}, "logits") == Axes{"batch", "position", "choice"});
  CHECK(axes_of({}, "blocks.0.feed_forward.hidden") == Axes{"batch", "position", "unit"});
  CHECK(axes_of({}, attention + "query") == Axes{"batch", "position", "head", "feature"});
  CHECK(axes_of({}, attention + "weights") == Axes{"batch", "head", "position", "key"});
  CHECK(axes_of({}, attention + "row_entropy") == Axes{"batch", "head", "position"});
  CHECK(axes_of({}, attention + "weight_total") == Axes{"batch", "head", "position", "value"});
  CHECK(axes_of({}, attention + "score_scale") == Axes{"value"});
  CHECK(axes_of({{"attention", slots}}, attention + "slot_scores") == Axes{"batch", "head", "position", "slot"});
  CHECK(axes_of({{"attention", spans}}, attention + "span.span") == Axes{"batch", "head", "position"});
  CHECK(axes_of({{"attention", spans}}, attention + "span.share_of_token.output") ==
        Axes{"batch", "position", "head"});
  CHECK(axes_of({{"normalization", "dyt"}}, "norm.saturation") == Axes{"value"});
  const Shape pixels{1, 8, 8, 3}, row{1, 5};
  CHECK(hook_axes("stem.output", pixels) == Axes{"batch", "row", "column", "channel"});
  CHECK(hook_axes("logits", row) == Axes{"batch", "choice"});
}

TEST_CASE("edits: each value of every model is edited with an effect, or refused") {
  for (const ModelCase& each : model_cases()) {
    CAPTURE(each.described());
    const auto model = randomized(each.settings);
    const auto inspected = example_of(*model);
    const std::vector<double> plain = inspected->run().to_vector();
    for (const auto& each_value : values_of(*inspected)) {
      const std::string& name = each_value.first;
      CAPTURE(name);
      try {
        Edits edits(name + "=0.37", *model);
        edits.begin();
        CHECK(inspected->run().to_vector() != plain);
      } catch (const UsageError& error) {
        Message(error.what()).names("--edits").value(name + "=0.37").offers("edit");
      }
    }
  }
}
