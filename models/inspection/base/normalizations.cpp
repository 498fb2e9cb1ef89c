#include "models/inspection/base/normalizations.h"

#include <map>
#include <typeindex>

#include "nn/normalizations/base/normalization.h"

namespace orrery::models {
namespace {

// Returns the kinds by module class; makes a module of each registered kind to find its class.
std::map<std::type_index, std::string> kinds() {
  std::map<std::type_index, std::string> all;
  for (const auto& [name, entry] : nn::normalizations()) {
    if (!entry.preset.empty()) continue;  // a preset shares another kind's class
    const auto one = nn::make_normalization(Spec{name, {}}, {.width = 8});
    const nn::Module& module = *one;
    all.emplace(typeid(module), name);
  }
  return all;
}

class Normalizations final : public nn::Visitor {
 public:
  std::vector<NormalizationModule> found;

 protected:
  void module(const std::string& path, nn::Module& module) override {
    const auto kind = kinds_.find(typeid(module));
    if (kind != kinds_.end() && kind->second != "none") found.push_back({path, kind->second, &module});
  }

 private:
  std::map<std::type_index, std::string> kinds_ = kinds();
};

}  // namespace

std::vector<NormalizationModule> normalizations_of(nn::Module& model) {
  Normalizations visitor;
  model.visit(visitor);
  return std::move(visitor.found);
}

}  // namespace orrery::models
