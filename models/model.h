// What can be trained: classes of models, each a file with its settings, and presets, which are settings with a name.
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

// Every class of models has
//   static inline const ModelInfo info{.name = ..., .description = ..., .source = ..., .task = ...};
//   using Settings = ...;                        with `visit`
//   explicit Type(const Settings& settings);
// and one line, REGISTER_MODEL(Type).
struct ModelInfo {
  std::string name, description, source;
  std::string task;  // what it learns, unless the user names another
};

struct ModelClass : ModelInfo {
  AnySettings settings;  // its defaults
  std::unique_ptr<nn::Module> (*make)(const AnySettings& settings);
};
Registry<ModelClass>& model_classes();

template <class Type>
bool register_model() {
  using Settings = typename Type::Settings;
  model_classes().add(
      {{Type::info}, AnySettings(Settings()), [](const AnySettings& settings) -> std::unique_ptr<nn::Module> {
         return std::make_unique<Type>(settings.as<Settings>());
       }});
  return true;
}
#define REGISTER_MODEL(Type) \
  [[maybe_unused]] static const bool registered_model_##Type = ::orrery::models::register_model<Type>()

// A preset has a name of its own.  Its parameters are counted with the setting `counted_for`, such as {"vocabulary",
// "65"}, where the data decides.
struct Preset {
  std::string name, description, model;
  AnySettings settings;
  int64_t parameters;
  std::vector<std::pair<std::string, std::string>> counted_for = {};
};
Registry<Preset>& presets();

// What `--model` names: a preset, or a class with its defaults.  An Error that names the nearest if it is neither.
struct NamedModel {
  const ModelClass& of;
  AnySettings settings;
};
NamedModel named_model(const std::string& name);

// The setting of that key among those of a model; an Error if it has none.
template <class T>
T& setting_of(const AnySettings& settings, std::string_view key) {
  const std::vector<Setting> members = settings.members();
  const Setting* const found = find_setting(members, key);
  check(found && std::holds_alternative<T*>(found->value), "model: it has no setting '", key,
        "', which is asked for here; is it a model for this --task?  `orrery list model` says what each learns");
  return *std::get<T*>(found->value);
}

// The model as the class that `owner`, a task or a command, needs; an Error that says so if it is another.
template <class Wanted>
Wanted& model_as(nn::Module& model, std::string_view owner, std::string_view what) {
  auto* const found = dynamic_cast<Wanted*>(&model);
  check(found != nullptr, owner, ": this model is not ", what);
  return *found;
}

}  // namespace orrery::models
