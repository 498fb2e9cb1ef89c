// All model classes: initialization reaches each weight matrix and table; Muon skips tables.
#include <doctest/doctest.h>

#include <cmath>

#include "engine/ops/ops.h"
#include "models/model.h"

using namespace orrery;
using namespace orrery::models;

namespace {

// Makes a small model from the settings that its class has.
std::unique_ptr<nn::Module> small_model(const ModelClass& of, const Assignments& more) {
  const Assignments small = {{"layers", "2"},      {"heads", "2"},          {"width", "32"},
                             {"context", "32"},    {"cache_length", "256"}, {"vocabulary", "64"},
                             {"image_size", "16"}, {"channels", "3"},       {"classes", "24"}};
  AnySettings settings = of.settings;
  for (const Assignments* const some : {&small, &more})
    for (const auto& [key, value] : *some)
      if (find_setting(settings.members(), key)) set_setting(settings, of.name, key, value);
  return of.make(settings);
}

double deviation(const nn::Parameter& parameter) {
  const Tensor x = parameter.value.detach().to(Dtype::f64);
  return std::sqrt(mean(x * x).item());
}

}  // namespace

TEST_CASE("initialization: it applies to every weight matrix and table of every model class") {
  for (const auto& each : model_classes())
    for (const Assignments& more :
         {Assignments{}, Assignments{{"feed_forward", "gated(silu)"}, {"pooling", "class_token"}, {"tied_head", "no"}},
          Assignments{{"feed_forward", "memory(relu)"}, {"shared_embedding", "no"}, {"shortcut", "option_b"}}}) {
      CAPTURE(each.first);
      Assignments all = more;
      all.emplace_back("initialization", "normal(0.37)");
      const auto model = small_model(each.second, all);
      nn::initialize(*model, 1);
      size_t weights = 0;
      for (const nn::NamedParameter& p : nn::parameters_of(*model)) {
        // `orrery list position` states N(0, 1) for these.
        if (!p.parameter->decay || p.path.ends_with("position.keys")) continue;
        CAPTURE(p.path);
        CHECK(deviation(*p.parameter) == doctest::Approx(0.37).epsilon(0.15));
        ++weights;
      }
      // Classes with layers or channels have at least 8; others, such as a dropped-in one, two.
      const std::vector<Setting> members = each.second.settings.members();
      const bool deep = find_setting(members, "layers") || find_setting(members, "channels");
      CHECK(weights >= (deep ? 8 : 2));
    }
}

TEST_CASE("tables: every model class marks the tables whose rows stand for tokens, positions or classes") {
  for (const auto& each : model_classes())
    for (const char* const position : {"learned", "relative", "relative(255, bias)"}) {
      if (each.first == "stream" && std::string(position) == "learned") continue;
      CAPTURE(each.first);
      CAPTURE(position);
      const auto model = small_model(each.second, {{"tied_head", "no"}, {"position", position}});
      for (const nn::NamedParameter& p : nn::parameters_of(*model)) {
        if (p.parameter->value.shape().rank() < 2 || p.path == "class_token") continue;
        CAPTURE(p.path);
        const auto has = [&](const char* word) { return p.path.find(word) != std::string::npos; };
        const bool expected =
            !has("patch_embedding") && (p.path.starts_with("head") || has("embedding") || has("position"));
        CHECK(p.parameter->is_lookup_table == expected);
      }
    }
}
