#include "models/inspection/base/normalizations.h"

#include <map>
#include <typeindex>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
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

FixedNormalization::FixedNormalization(nn::Module& module, const Tensor& x) : module_(module) {
  const NoGrad guard;
  nn::ForwardPass pass;
  offset_ = module.forward(Tensor::zeros_like(x), pass);
  const auto exact = [](const Tensor& t) { return t.detach().to(Dtype::f64); };
  const Tensor z = exact(without_means(x)), size = abs(z), rise = exact(module.forward(x, pass)) - exact(offset_);
  const Tensor large = heaviside(size - mean(size) * 1e-6);  // a quotient of smaller numbers is rounding alone
  slope_ = where(large, rise / where(large, z, Tensor::full_like(z, {1}, 1)), Tensor::zeros_like(z, {1})).to(x.dtype());
}

Tensor FixedNormalization::linear_part(const Tensor& x) const { return slope_ * without_means(x); }

Tensor FixedNormalization::without_means(const Tensor& x) const {
  const auto* const subtracts = dynamic_cast<const nn::SubtractsMeans*>(&module_);
  return subtracts ? subtracts->without_means(x) : x;
}

}  // namespace orrery::models
