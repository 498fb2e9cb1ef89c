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

const bool family_of_normalizations = add_spec_family<normalizations>("normalization");

}  // namespace orrery::nn
