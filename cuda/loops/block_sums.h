// The second step of sums of columns, whose first step the blocks of a kernel did: it adds their
// sums. For plain C++.
#pragma once

#include <cstdint>
#include <memory>

namespace orrery::cuda {

class Workspace;

// out[i] = [out[i] +] the sum of partial[b * columns + i] over blocks b, in an order given by the sizes.
template <class A>
struct BlockSum {
  const A* partial;
  A* out;
  int64_t columns, blocks;
  bool accumulate;
};

// Queues a sum of `partial`, in `workspace`. may_wait: as in cuda/runtime/waiting.h.
template <class A>
void add_blocks(const BlockSum<A>& sum, const std::shared_ptr<Workspace>& workspace, bool may_wait);

}  // namespace orrery::cuda
