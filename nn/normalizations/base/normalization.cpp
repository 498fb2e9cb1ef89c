#include "nn/normalizations/base/normalization.h"

#include "nn/base/spec_family.h"

namespace orrery::nn {

Registry<NormalizationEntry>& normalizations() {
  static Registry<NormalizationEntry> all("normalization");
  return all;
}
std::unique_ptr<Module> make_normalization(const Spec& spec, const NormalizationOptions& options) {
  return make_from(normalizations(), spec, options);
}

void check_affine(const char* operation, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check(x.shape().rank() >= 1 && weight.shape() == Shape{x.size(-1)} && (!bias || bias.shape() == weight.shape()),
        operation, ": x ", x.shape(), " does not fit weight ", weight.shape(), "; the weight ",
        bias ? "and bias need" : "needs", " the size of the last axis");
  check_same_kind(operation, x, weight);
}

const bool family_of_normalizations = add_spec_family<normalizations>("normalization");

}  // namespace orrery::nn
