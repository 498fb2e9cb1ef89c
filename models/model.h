// Model classes, each a file with its settings, and presets, which are named settings.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/settings/registry.h"
#include "models/settings/any_settings.h"
#include "nn/base/module.h"

namespace orrery::models {

// A model class has
//   static inline const ModelInfo info{.name = ..., .description = ..., .source = ..., .task = ...};
//   using Settings = ...;                        with `visit`
//   explicit Type(const Settings& settings);
//   static void check_early(const Settings& settings);   if a setting can be refused before the data are read
// and the line REGISTER_MODEL(Type).
struct ModelInfo {
  std::string name, description, source;
  std::string task;  // default task
};

struct ModelClass : ModelInfo {
  AnySettings settings;  // default values
  std::unique_ptr<nn::Module> (*make)(const AnySettings& settings);
  // Throws Error for some of the settings that `make` refuses, at less cost and before the data are read.
  void (*check)(const AnySettings& settings);
};
Registry<ModelClass>& model_classes();

template <class Type>
bool register_model() {
  using Settings = typename Type::Settings;
  model_classes().add(
      {{Type::info}, AnySettings(Settings()), [](const AnySettings& settings) -> std::unique_ptr<nn::Module> {
         return std::make_unique<Type>(settings.as<Settings>());
       },
       []([[maybe_unused]] const AnySettings& settings) {
         if constexpr (requires { Type::check_early(settings.as<Settings>()); })
           Type::check_early(settings.as<Settings>());
       }});
  return true;
}
#define REGISTER_MODEL(Type) \
  [[maybe_unused]] static const bool registered_model_##Type = ::orrery::models::register_model<Type>()

// A named model with settings. If data determine a setting, parameters are counted with its value
// in `counted_with`, such as {"vocabulary", "65"}.
struct Preset {
  std::string name, description, model;
  AnySettings settings;
  int64_t parameters;
  std::vector<std::pair<std::string, std::string>> counted_with = {};
};
Registry<Preset>& presets();

// A model named by `--model`: a preset, or a class with defaults. Errors name the nearest name.
struct NamedModel {
  const ModelClass& model_class;
  AnySettings settings;
  std::string name;  // the current one, also if an alias was given
};
NamedModel named_model(const std::string& name);

// Returns a model's setting `key`; throws if there is none.
template <class T>
T& setting_of(const AnySettings& settings, std::string_view key) {
  const std::vector<Setting> members = settings.members();
  const Setting* const found = find_setting(members, key);
  check(found && std::holds_alternative<T*>(found->value), "model: this model has no setting '", key,
        "', which is required here; choose a model for this --task from `orrery list model`");
  return *std::get<T*>(found->value);
}

// Returns the model as the class that `owner`, a task or command, needs; throws for other classes.
template <class Wanted>
Wanted& model_as(nn::Module& model, std::string_view owner, std::string_view what) {
  auto* const found = dynamic_cast<Wanted*>(&model);
  check(found != nullptr, owner, ": this model is not ", what);
  return *found;
}

}  // namespace orrery::models
