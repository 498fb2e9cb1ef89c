// The model and task that a name in the settings selects.
#include <doctest/doctest.h>

#include <map>

#include "models/architectures/gpt.h"
#include "models/catalogue/catalogue.h"
#include "models/model.h"
#include "models/tasks/base/task.h"
#include "models/training/settings.h"
#include "nn/base/initialization.h"
#include "tests/support/gpt_settings.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::gpt_settings;

TEST_CASE("models: a name is a preset or a class, and each preset has the stated number of parameters") {
  CHECK(named_model("gpt").model_class.name == "gpt");
  CHECK(named_model("gpt").settings.as<GptSettings>().layers == GptSettings().layers);
  CHECK(named_model("gpt2-124m").settings.as<GptSettings>().layers == 12);
  expect_error([] { named_model("gpt2-124"); }).value("'gpt2-124'").offers("'gpt2-124m'");
  for (const auto& each : presets()) {
    const auto& [name, preset] = each;
    INFO(each.first);
    CHECK_FALSE(model_classes().find(name));  // else the class could not be named
    const NamedModel named = named_model(name);
    for (const auto& [key, value] : preset.counted_with) set_setting(named.settings.members(), "test", key, value);
    const nn::ParameterCount untouched(max_elements);  // no memory for gigabytes of weights
    CHECK(nn::count_parameters(*named.model_class.make(named.settings)) == preset.parameters);
    CHECK(tasks().find(named.model_class.task));
  }
}

TEST_CASE("models: the catalogue shows the differences between the presets of a class") {
  for (const CatalogueFamily& family : catalogue()) {
    if (family.name != "model_preset") continue;
    CHECK(family.entries.size() >= 20);
    std::map<std::vector<std::pair<std::string, std::string>>, std::string> known;
    for (const CatalogueEntry& entry : family.entries) {
      auto shown = entry.settings;
      shown.emplace_back("model", entry.properties.at(0).second);
      const auto other = known.emplace(shown, entry.name);
      CHECK_MESSAGE(other.second, entry.name, " is shown as ", other.first->second, " is");
    }
  }
}

TEST_CASE("models: a preset's own settings do not change with those of a run") {
  const NamedModel named = named_model("gpt-char-small");
  named.settings.as<GptSettings>().layers = 99;
  CHECK(named_model("gpt-char-small").settings.as<GptSettings>().layers == 4);
}

TEST_CASE("settings: model and task determine the available settings, in any order of the arguments") {
  const TrainSettings run = make_settings({{"layers", "3"}, {"model", "gpt2-124m"}});
  CHECK(gpt_settings(run).layers == 3);
  CHECK(gpt_settings(run).heads == 12);
  CHECK(run.task == "language_modeling");
  CHECK(make_settings({{"task", "language_modeling"}}).task == "language_modeling");
  const std::vector<std::pair<std::string, std::string>> misspelt = {{"task", "language_modelling"}};
  expect_error([&] { make_settings(misspelt); }).value("language_modelling").offers("'language_modeling'");
  const auto depth = [] { setting_of<int64_t>(named_model("gpt").settings, "depth"); };
  expect_error(depth).names("model").value("depth").offers("--task").offers("orrery list model");
}

TEST_CASE("models: separate normalizations for attention, feed-forward and the end, each with its alpha") {
  const Assignments own = {{"attention_normalization", "dyt(alpha=2)"},
                           {"feed_forward_normalization", "dyt(alpha=3)"},
                           {"final_normalization", "dyt(alpha=4)"},
                           {"layers", "2"},
                           {"width", "8"},
                           {"heads", "2"}};
  const std::vector<std::pair<Assignments, std::vector<int>>> models = {
      {{{"model", "gpt"}, {"vocabulary", "5"}}, {2, 2, 1}},
      {{{"model", "vit"}, {"image_size", "8"}, {"channels", "1"}, {"classes", "2"}}, {2, 2, 1}},
      {{{"model", "stream"}, {"vocabulary", "5"}, {"norm_place", "pre"}}, {2, 2, 1}},
      {{{"model", "stream"}, {"vocabulary", "5"}, {"norm_place", "post"}}, {2, 2, 1}},
      {{{"model", "encoder_decoder"}, {"vocabulary", "5"}}, {6, 4, 2}}};  // two self-attentions and one cross attention
  for (const auto& each : models) {
    auto [settings, expected] = each;
    CAPTURE(each.first[0].second);
    settings.insert(settings.end(), own.begin(), own.end());
    const auto model = make_model(make_settings(settings));
    nn::initialize(*model, 1);
    std::vector<int> found(3);
    for (const nn::NamedParameter& p : nn::parameters_of(*model))
      if (p.path.ends_with("alpha")) ++found.at(static_cast<size_t>(p.parameter->value.to_vector()[0]) - 2);
    CHECK(found == expected);
  }
}

TEST_CASE("models: normalizations next to an attention are marked in every model") {
  // At width 2,048 DyT's alpha starts at 1 next to an attention and at 1/2 elsewhere.
  for (Assignments settings : {Assignments{{"model", "gpt"}, {"vocabulary", "5"}},
                               {{"model", "vit"}, {"image_size", "8"}, {"channels", "1"}, {"classes", "2"}},
                               {{"model", "stream"}, {"vocabulary", "5"}, {"norm_place", "post"}},
                               {{"model", "encoder_decoder"}, {"vocabulary", "5"}}}) {
    settings.insert(
        settings.end(),
        {{"normalization", "dyt(by_width=yes)"}, {"layers", "1"}, {"width", "2048"}, {"heads", "2"}, {"d_ff", "1"}});
    const auto model = make_model(make_settings(settings));
    nn::initialize(*model, 1);
    int known = 0;
    for (const nn::NamedParameter& p : nn::parameters_of(*model)) {
      if (!p.path.ends_with("alpha")) continue;
      CAPTURE(p.path);
      const bool of_attention = p.path.find("attention") != std::string::npos;
      CHECK(p.parameter->value.item() == (of_attention ? 1 : 0.5));
      ++known;
    }
    CHECK(known >= 2);
  }
}
