// The first P tokens see each other, both ways, and others see nothing by it: `causal or prefix(32)`. In a language
// model the first P positions bear no loss, since they know what they would predict.
#include "nn/masks/base/formula.h"

namespace orrery::nn {
namespace {

struct Prefix {
  static inline const Info info{
      .name = "prefix", .formula = "i < P and j < P", .source = "Raffel et al. 2020, arXiv:1910.10683"};
  int64_t tokens = 1;
  template <class V>
  void visit(V& v) {
    v("P", tokens, "tokens of the prefix", between(1, 16777216));
  }
  HOST_DEVICE bool visible(int64_t i, int64_t j) const { return i < tokens && j < tokens; }
  int64_t later() const { return tokens; }
};
REGISTER_MASK(Prefix);

}  // namespace
}  // namespace orrery::nn
