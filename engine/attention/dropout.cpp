// Which weights dropout keeps: see AttendOptions.  The same numbers in forward and backward, whatever the tiles.
#include <algorithm>
#include <cmath>

#include "engine/attention/problem.h"

namespace orrery::detail::attend {
namespace {

// Words of random_key.bits for queries i, from counter first + i * step, become factors in m[word * width + i].
// There is no branch, so that the loop over i runs in vectors.
template <class A>
void four_keys(const RandomKey random_key, uint64_t first, uint64_t step, int64_t width, uint32_t least, A kept, A* m) {
  for (int64_t i = 0; i < width; ++i) {
    const Values<uint32_t, 4> bits = random_key.bits(first + static_cast<uint64_t>(i) * step);
    m[i] = bits[0] >= least ? kept : A(0);
    m[width + i] = bits[1] >= least ? kept : A(0);
    m[2 * width + i] = bits[2] >= least ? kept : A(0);
    m[3 * width + i] = bits[3] >= least ? kept : A(0);
  }
}

}  // namespace

template <class A>
const A* dropout_factors(const Problem<A>& problem, int64_t row, int64_t width, int64_t key, int64_t keys, A* memory) {
  const A kept = static_cast<A>(1 / (1 - problem.options.dropout));
  const auto least = static_cast<uint32_t>(std::min(std::ceil(problem.options.dropout * 0x1p32), 0x1p32 - 1));
  const RandomKey random_key = problem.options.random_key.now();
  const int64_t counters = (problem.sizes.keys + problem.sizes.slots + 3) / 4;  // of a row
  // Four keys at a time, from the first of four to the last of four: slots may begin and end in the middle.
  const int64_t before = key % 4;
  for (int64_t j = 0; j < before + keys; j += 4)
    four_keys(random_key, static_cast<uint64_t>(row * counters + (key + j) / 4), static_cast<uint64_t>(counters), width,
              least, kept, memory + j * width);
  return memory + before * width;
}

template const float* dropout_factors(const Problem<float>&, int64_t, int64_t, int64_t, int64_t, float*);
template const double* dropout_factors(const Problem<double>&, int64_t, int64_t, int64_t, int64_t, double*);

}  // namespace orrery::detail::attend
