// The sum of a step's gradient over its parts, in the order of the part tree.
//
// Backward adds a part's micro-batches into one gradient tensor. A left child of the tree is copied
// to a buffer, and its right sibling is added to it there; the last additions of a step go into the
// gradient tensor. Eight parts take 3 buffers, 4 copies and 7 additions.
//
// A rank has a share of the parts. It adds up the fewest nodes of the tree that make up its share,
// and sends each owner of elements its slice of them. The owner adds the nodes of all ranks as the
// tree does, so that a sum has the same bits for any number of ranks. Each rank sends (p + 1) (N - 1)
// / N times the gradient's bytes, with N ranks, p nodes in its share and the updated elements.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/distributed/part_tree.h"
#include "engine/distributed/ranks.h"
#include "engine/tensor/tensor.h"

namespace orrery {

class GradientSum {
 public:
  // `gradient`: the tensor that backward writes. share: the parts that are taken. Allocates
  // buffers_of(parts, share) tensors like it.
  GradientSum(const Tensor& gradient, int64_t parts, IndexRange share);
  // Takes the sum of part `part`, which is in `gradient`; parts of the share come in order. After
  // the last one of all parts `gradient` has their sum; before, the caller begins it anew.
  void take(int64_t part);
  // Adds up the parts of all ranks, each of which has taken its share_of the parts. Called by all
  // ranks together. `gradient` then has the sum of all parts in owned[rank].
  void add_up(Ranks& ranks, const std::vector<IndexRange>& owned);

  static int64_t buffers_of(int64_t parts, const IndexRange& share);  // with all parts floor(log2(parts))

 private:
  Tensor sum_of(size_t node) const;  // of a node of the share, which has taken all its parts

  Tensor gradient_;
  int64_t parts_;
  IndexRange share_;
  PartStack stack_;
  std::vector<Tensor> buffers_;  // the sums of the nodes on the stack, the lowest first
};

}  // namespace orrery
