// Sorting on a GPU, for plain C++.
#pragma once

#include <cstdint>

namespace orrery::cuda {

// sorted[i] = key[order[i]], ascending; equal keys stay in the order of their places.  A key outside 0 to limit - 1
// counts as `limit`, so it comes last.  n and limit lie below 2^31.  Queued, as all work.
void sort(const int32_t* key, int64_t n, int64_t limit, int32_t* sorted, int32_t* order);

}  // namespace orrery::cuda
