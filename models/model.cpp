#include "models/model.h"

namespace orrery::models {

Registry<ModelClass>& model_classes() {
  static Registry<ModelClass> all("model");
  return all;
}
Registry<Preset>& presets() {
  static Registry<Preset> all("model");
  return all;
}

NamedModel named_model(const std::string& name) {
  if (const ModelClass* const found = model_classes().find(name)) return {*found, found->settings, found->name};
  if (const Preset* const found = presets().find(name))
    return {model_classes().at(found->model), found->settings, found->name};
  std::vector<std::string> names = presets().names();
  for (const std::string& one : model_classes().names()) names.push_back(one);
  detail::fail_unknown("model", name, names, {});
}

}  // namespace orrery::models
