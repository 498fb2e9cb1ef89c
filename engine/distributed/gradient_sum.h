// The sum of a step's gradient over its parts, in the order of the part tree.
//
// Backward adds a part's micro-batches into one gradient tensor. A left child of the tree is copied
// to a buffer, and its right sibling is added to it there; the last additions of a step go into the
// gradient tensor. Eight parts take 3 buffers, 4 copies and 7 additions.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/distributed/part_tree.h"
#include "engine/tensor/tensor.h"

namespace orrery {

class GradientSum {
 public:
  // `gradient`: the tensor that backward writes. Allocates buffers_of(parts) tensors like it.
  GradientSum(const Tensor& gradient, int64_t parts);
  // Takes the sum of part `part`, which is in `gradient`; parts come in order, from 0. After the
  // last one `gradient` has the sum of all parts; before, the caller begins it anew.
  void take(int64_t part);

  static int64_t buffers_of(int64_t parts);  // floor(log2(parts))

 private:
  Tensor gradient_;
  int64_t parts_;
  PartStack stack_;
  std::vector<Tensor> buffers_;  // the sums of the nodes on the stack, the lowest first
};

}  // namespace orrery
