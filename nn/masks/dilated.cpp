// Dilated attention: keys at distances that are multiples of d. Every tile of a kernel has such keys, so no tile is
// skipped: it takes the full time.
#include "nn/masks/base/formula.h"

namespace orrery::nn {
namespace {

struct Dilated {
  static inline const Info info{.name = "dilated",
                                .formula = "(i - j) mod d = 0",
                                .source = "Child et al. 2019, arXiv:1904.10509; Beltagy et al. 2020, arXiv:2004.05150"};
  int64_t step = 2;
  template <class V>
  void visit(V& v) {
    v("d", step, "distance between the keys", between(1, 16777216));
  }
  HOST_DEVICE bool visible(int64_t i, int64_t j) const { return (i - j) % step == 0; }
};
REGISTER_MASK(Dilated);

}  // namespace
}  // namespace orrery::nn
