// Sliding window: keys at distances below w, on both sides of the query.
#include "nn/masks/base/formula.h"

namespace orrery::nn {
namespace {

struct Window {
  static inline const Info info{
      .name = "window", .formula = "|i - j| < w", .source = "Beltagy et al. 2020, arXiv:2004.05150"};
  int64_t width = 256;
  template <class V>
  void visit(V& v) {
    v("w", width, "number of keys on each side, the query's own included", between(1, 16777216));
  }
  HOST_DEVICE bool visible(int64_t i, int64_t j) const { return i - j < width && j - i < width; }
  MaskBand band() const { return {.window = width}; }
};
REGISTER_MASK(Window);

}  // namespace
}  // namespace orrery::nn
