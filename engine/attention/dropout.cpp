// Dropout factors of the weights (WeightDropout): equal in forward and backward, for any tiles.
#include "engine/attention/problem.h"

namespace orrery::detail::attention {

// Computes keys in whole groups of four, since slots may begin and end inside a group. The loop
// over queries has no branch, so that it vectorizes.
template <class A>
const A* dropout_factors(const Problem<A>& p, int64_t row, int64_t width, int64_t key, int64_t keys, A* memory) {
  const WeightDropout<A> dropout = p.dropout;
  const RandomKey rng_key = dropout.rng_key.load();
  const int64_t before = key % 4;
  for (int64_t j = 0; j < before + keys; j += 4) {
    A* const m = memory + j * width;
    for (int64_t i = 0; i < width; ++i) {
      const Values<uint32_t, 4> bits = rng_key.bits(dropout_counter(dropout, row + i, key + j));
      m[i] = dropout_factor(dropout, bits[0]), m[width + i] = dropout_factor(dropout, bits[1]);
      m[2 * width + i] = dropout_factor(dropout, bits[2]), m[3 * width + i] = dropout_factor(dropout, bits[3]);
    }
  }
  return memory + before * width;
}

template const float* dropout_factors(const Problem<float>&, int64_t, int64_t, int64_t, int64_t, float*);
template const double* dropout_factors(const Problem<double>&, int64_t, int64_t, int64_t, int64_t, double*);

}  // namespace orrery::detail::attention
