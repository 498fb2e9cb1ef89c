// A query attends to its own and to earlier keys: what a language model may know when it predicts the next token.
#include "nn/masks/base/formula.h"

namespace orrery::nn {
namespace {

struct Causal {
  static inline const Info info{
      .name = "causal", .formula = "j <= i", .source = "Vaswani et al. 2017, arXiv:1706.03762"};
  HOST_DEVICE bool visible(int64_t i, int64_t j) const { return j <= i; }
  MaskBand band() const { return {.causal = true}; }
  int64_t later() const { return 0; }
};
REGISTER_MASK(Causal);

}  // namespace
}  // namespace orrery::nn
