// Attention sinks: the first S keys, to which trained models give weight that belongs nowhere. With a window, as in
// `causal and (sinks(4) or window(256))`, texts may be longer than the window.
#include "nn/masks/base/formula.h"

namespace orrery::nn {
namespace {

struct Sinks {
  static inline const Info info{.name = "sinks", .formula = "j < S", .source = "Xiao et al. 2023, arXiv:2309.17453"};
  int64_t count = 4;
  template <class V>
  void visit(V& v) {
    v("S", count, "keys from the first on", between(1, 16777216));
  }
  HOST_DEVICE bool visible(int64_t, int64_t j) const { return j < count; }
};
REGISTER_MASK(Sinks);

}  // namespace
}  // namespace orrery::nn
