#include "cuda/loops/sort.h"

#include "cuda/loops/sort.cuh"

namespace orrery::cuda {

void sort(const int32_t* key, int64_t n, int64_t limit, int32_t* sorted, int32_t* order) {
  if (n == 0) return;
  const int64_t tiles = ceil_div(n, sort_tile), counted = tiles * sort_radix;
  const Workspace workspace((counted + 2 * n) * static_cast<int64_t>(sizeof(int32_t)));
  int32_t* const counts = static_cast<int32_t*>(workspace.data());
  int32_t *const other_key = counts + counted, *const other_index = other_key + n;
  const unsigned blocks = static_cast<unsigned>(tiles);
  const int bits = std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(limit))));  // `limit` is a key
  SortPass pass{key, nullptr, static_cast<int32_t>(n), static_cast<int32_t>(limit), 0};
  for (int left = (bits + sort_bits - 1) / sort_bits; left > 0; --left) {
    int32_t *const to_key = left % 2 ? sorted : other_key, *const to_index = left % 2 ? order : other_index;
    launch({"sort: count", blocks, loop_threads, sizeof(SortCounters)}, sort_count_kernel, pass, counts);
    launch({"sort: scan", 1, loop_threads, sizeof(SortTotals)}, sort_scan_kernel, tiles, counts);
    launch({"sort: scatter", blocks, loop_threads, sizeof(SortCounters)}, sort_scatter_kernel, pass, counts, to_key,
           to_index);
    pass.key = to_key, pass.index = to_index, pass.shift += sort_bits;
  }
}

}  // namespace orrery::cuda
