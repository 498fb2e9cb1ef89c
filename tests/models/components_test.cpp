// The tree of a model's components against its modules, parameters and values.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "models/modules.h"
#include "models/reports/report_components.h"
#include "tests/support/inspected_examples.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

std::vector<View> components_of(const InspectedExample& example) {
  std::vector<View> views = analyze(example, "components", {});
  REQUIRE(views.size() == 1);
  add_formulas(std::get<ComponentsView>(views[0].data), [](const std::string& family, const std::string& name) {
    return SourceHead{family + "/" + name, "link to " + name, ""};
  });
  return views;
}
const ComponentsView::Component& component(const ComponentsView& tree, std::string_view path) {
  for (const ComponentsView::Component& each : tree.components)
    if (each.path == path) return each;
  FAIL("no component " << path);
  return tree.components[0];
}
std::set<std::string> formulas_of(const ComponentsView& tree, const std::string& path) {
  std::set<std::string> names;
  for (const size_t i : component(tree, path).formulas)
    names.insert(tree.formulas[i].family + " " + tree.formulas[i].name);
  return names;
}

}  // namespace

TEST_CASE("components: the tree has every module of every model, with its parameters and its class or family") {
  for (const ModelCase& each : model_cases()) {
    CAPTURE(each.described());
    const auto model = make_model(make_settings(each.settings));
    randomize(*model);
    const std::vector<View> views = components_of(*example_of(*model));
    const auto& tree = shown<ComponentsView>(views, "Components of the model");
    const auto modules = modules_of(*model);
    REQUIRE(tree.components.size() == modules.size() + 1);
    CHECK(tree.components[0].path == "");
    CHECK(tree.components[0].kind == each.settings[0].second.substr(0, each.settings[0].second.find('-')) +
                                         (each.settings[0].second == "stream" ? "_model" : ""));
    size_t tensors = tree.components[0].tensors.size();
    for (size_t i = 0; i < modules.size(); ++i) {
      const ComponentsView::Component& made = tree.components[i + 1];
      CAPTURE(modules[i].first);
      CHECK(made.path == modules[i].first);
      CHECK(made.parameters == nn::count_parameters(*modules[i].second));
      REQUIRE(!made.formulas.empty());
      const ComponentsView::Formula& own = tree.formulas[made.formulas[0]];
      CHECK(own.formula.empty() == own.family.empty());
      CHECK(own.file == own.family + "/" + own.name);
      CHECK(own.link == "link to " + own.name);
      if (!made.spec.empty()) CHECK(own.family == made.kind);
      tensors += made.tensors.size();
    }
    CHECK(tree.components[0].parameters == nn::count_parameters(*model));
    CHECK(tensors == nn::parameters_of(*model).size());
  }
}

TEST_CASE("components: specs, formulas, heads, units, slots and spans") {
  const auto model = small_gpt({{"attention", "softmax(qk_norm=rms, span=adaptive_span(4, R=2), persistent=3)"},
                                {"feed_forward", "gated(silu)"},
                                {"d_ff", "24"}});
  const Tensor fraction = parameter_of(*model, "blocks.1.attention.span.share");
  fraction.copy_from(Tensor::from(fraction.shape(), std::vector<double>{0.25, 1}, fraction.dtype()));
  const std::vector<View> views = components_of(*example_of(*model, "0 1 4 2"));
  const auto& tree = shown<ComponentsView>(views, "Components of the model");
  const ComponentsView::Component& attention = component(tree, "blocks.1.attention");
  CHECK(attention.kind == "attention");
  CHECK(attention.spec == "softmax(qk_norm=rms, attend_to_self=no, span=adaptive_span(S=4, R=2), "
                          "persistent=slots(N=3, split=no, scaled=yes))");
  CHECK(attention.heads == 2);
  CHECK(attention.slots == 3);
  CHECK(attention.units == 0);
  CHECK(attention.span == std::vector<double>{3, 4});  // min(z + R, S) with z = 4 * 0.25 and 4
  CHECK(formulas_of(tree, "blocks.1.attention") ==
        std::set<std::string>{"attention softmax", "normalization rms", "attention_setting qk_norm",
                              "attention_setting adaptive_span", "attention_setting slots"});
  const ComponentsView::Component& feed_forward = component(tree, "blocks.0.feed_forward");
  CHECK(feed_forward.units == 24);
  CHECK(feed_forward.heads == 0);
  CHECK(formulas_of(tree, "blocks.0.feed_forward") ==
        std::set<std::string>{"feed_forward gated", "activation silu"});
  CHECK(component(tree, "blocks.0.feed_forward_norm").spec == "layer");
  CHECK(formulas_of(tree, "token_embedding") == std::set<std::string>{"layer embedding"});
  CHECK(component(tree, "token_embedding").tensors == std::vector<std::string>{"weight (9, 16)"});
  CHECK(formulas_of(tree, "blocks.0") == std::set<std::string>{" block"});
  const auto fixed = small_gpt({{"attention", "pointwise(relu, span=fixed(3))"}});
  const std::vector<View> others = components_of(*example_of(*fixed, "0 1 4 2"));
  CHECK(component(shown<ComponentsView>(others, "Components of the model"), "blocks.0.attention").span ==
        std::vector<double>{3});
}
