// Sorting on a GPU, for plain C++.
#pragma once

#include <cstdint>

namespace orrery::cuda {

// Queues a stable ascending sort, sorted[i] = key[order[i]]. A key outside 0 to limit - 1 is
// replaced by `limit`, so it comes last. n and limit must be below 2^31.
void sort(const int32_t* key, int64_t n, int64_t limit, int32_t* sorted, int32_t* order);

}  // namespace orrery::cuda
