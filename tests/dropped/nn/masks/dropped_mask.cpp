// Hides every n-th key, except from itself.
#include "nn/masks/base/formula.h"

namespace orrery::nn {
namespace {

struct DroppedMask {
  static inline const Info info{.name = "dropped_mask", .formula = "j mod n > 0 or i = j", .source = "a test"};
  int64_t n = 5;
  template <class V>
  void visit(V& v) {
    v("n", n, "distance between hidden keys", between(2, 65536));
  }
  HOST_DEVICE bool visible(int64_t i, int64_t j) const { return j % n > 0 || i == j; }
};
REGISTER_MASK(DroppedMask);

}  // namespace
}  // namespace orrery::nn
