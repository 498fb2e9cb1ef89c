// Column sums on a CPU, for engine/loops/loops.h.
#pragma once

#include <cstdint>

#include "engine/loops/terms.h"

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wunknown-pragmas"  // ivdep is GCC's
#endif

namespace orrery::detail {

constexpr int64_t columns_at_once = 256;  // few enough for the running sums to stay in the nearest cache
template <class A, int K>
struct ColumnSums {
  A values[K][columns_at_once] = {};
};
// Sums `columns` columns from c on over rows [first, last); splits many rows into halves.
template <class A, int K, class F>
void sum_columns(const F& f, int64_t first, int64_t last, int64_t inner, int64_t c, int64_t columns,
                 ColumnSums<A, K>& sums) {
  using Value = decltype(f(int64_t{0}, int64_t{0}));
  constexpr int64_t rows_at_once = 256;
  if (last - first > rows_at_once) {
    const int64_t half = first + ((last - first) / 2 + rows_at_once - 1) / rows_at_once * rows_at_once;
    ColumnSums<A, K> more;
    sum_columns(f, first, half, inner, c, columns, sums);
    sum_columns(f, half, last, inner, c, columns, more);
    for (int k = 0; k < K; ++k)
      for (int64_t i = 0; i < columns; ++i) sums.values[k][i] += more.values[k][i];
    return;
  }
  for (int64_t j = first; j < last; ++j) {
    const int64_t at = j * inner + c;
#pragma GCC ivdep
    for (int64_t i = 0; i < columns; ++i) {
      const Value v = f(at + i, j);
      for (int k = 0; k < K; ++k) sums.values[k][i] += Terms<Value>::get(v, k);
    }
  }
}

}  // namespace orrery::detail

#if defined(__clang__)
#pragma clang diagnostic pop
#endif
