// Fixed attention: the keys of the query's own block, and the last c of every block, which summarize it. Blocks that
// are whole tiles of the kernels (multiples of 128 tokens) save the time of most hidden keys.
#include "nn/masks/base/formula.h"

namespace orrery::nn {
namespace {

struct FixedBlocks {
  static inline const Info info{.name = "fixed_blocks",
                                .formula = "floor(i / l) = floor(j / l) or j mod l >= l - c",
                                .source = "Child et al. 2019, arXiv:1904.10509"};
  int64_t block = 128, summary = 8;
  template <class V>
  void visit(V& v) {
    v("l", block, "tokens of a block", between(1, 16777216));
    v("c", summary, "keys at the end of each block that all queries see", between(0, 16777216));
  }
  void check() const {
    orrery::check(summary <= block, "fixed_blocks: c (", summary, ") must be at most l (", block, ")");
  }
  HOST_DEVICE bool visible(int64_t i, int64_t j) const {
    return i / block == j / block || j % block >= block - summary;
  }
};
REGISTER_MASK(FixedBlocks);

}  // namespace
}  // namespace orrery::nn
