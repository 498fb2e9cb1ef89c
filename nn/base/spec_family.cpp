#include "nn/base/spec_family.h"

namespace orrery::nn {

Registry<SpecFamily>& spec_families() {
  static Registry<SpecFamily> all("family");
  return all;
}

}  // namespace orrery::nn
