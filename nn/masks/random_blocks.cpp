// Random blocks: block a of tokens draws r of the blocks 0 to a, with replacement, and tokens of both see each other.
// The draws depend on seed, layer and a alone: each step, length and cache has the same.
#include "engine/math/random.h"
#include "nn/masks/base/formula.h"

namespace orrery::nn {
namespace {

struct RandomBlocks {
  static inline const Info info{.name = "random_blocks",
                                .formula = "min(a, b) in draws(max(a, b)), a = floor(i / l), b = floor(j / l)",
                                .source = "Zaheer et al. 2020, arXiv:2007.14062"};
  int64_t block = 64, draws = 3, seed = 1, layer = 0;
  template <class V>
  void visit(V& v) {
    v("l", block, "tokens of a block", between(1, 16777216));
    v("r", draws, "blocks drawn for each block", between(1, 64));
    v("seed", seed, "seed of the draws", between(0, 1e15));
  }
  HOST_DEVICE bool visible(int64_t i, int64_t j) const {
    const int64_t last = (i > j ? i : j) / block, other = (i > j ? j : i) / block;
    const RandomKey rng = RandomKey{static_cast<uint64_t>(seed), 0}.derive(layer).derive(last);
    for (uint64_t n = 0; n < static_cast<uint64_t>(draws); ++n)
      if (below(rng, n, static_cast<uint64_t>(last) + 1) == static_cast<uint64_t>(other)) return true;
    return false;
  }
  HOST_DEVICE Coverage coverage(Positions i, Positions j) const {
    if (i.begin / block != (i.end - 1) / block || j.begin / block != (j.end - 1) / block) return Coverage::some;
    return visible(i.begin, j.begin) ? Coverage::all : Coverage::none;
  }
};
REGISTER_MASK(RandomBlocks);

}  // namespace
}  // namespace orrery::nn
