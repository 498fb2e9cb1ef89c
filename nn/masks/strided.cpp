// Strided attention: the nearest keys, and every s-th one. The paper gives each half to other heads, or joins both in
// every head, as here.
#include "nn/masks/base/formula.h"

namespace orrery::nn {
namespace {

struct Strided {
  static inline const Info info{.name = "strided",
                                .formula = "|i - j| < s or (i - j) mod s = 0",
                                .source = "Child et al. 2019, arXiv:1904.10509"};
  int64_t stride = 128;
  template <class V>
  void visit(V& v) {
    v("s", stride, "keys nearby, and the distance between the others", between(1, 16777216));
  }
  HOST_DEVICE bool visible(int64_t i, int64_t j) const {
    return (i - j < stride && j - i < stride) || (i - j) % stride == 0;
  }
};
REGISTER_MASK(Strided);

}  // namespace
}  // namespace orrery::nn
