// Every query attends to every key, as in an encoder.
#include "nn/masks/base/formula.h"

namespace orrery::nn {
namespace {

struct Full {
  static inline const Info info{
      .name = "full", .formula = "all i, j", .source = "Vaswani et al. 2017, arXiv:1706.03762"};
  HOST_DEVICE bool visible(int64_t, int64_t) const { return true; }
  MaskBand band() const { return {}; }
};
REGISTER_MASK(Full);

}  // namespace
}  // namespace orrery::nn
