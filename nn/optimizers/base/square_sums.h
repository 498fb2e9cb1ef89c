// Sums of squares of ranges of a flat tensor, such as the squared norms of gradients.
//
// A range is cut into pieces: on a CPU the blocks in which sum_of_squares adds, at most 64, whose
// number and length depend on the range's length only; on a GPU the range itself. The sum of a
// piece needs no other piece. Folded from the left, they have the bits of sum_of_squares, wherever
// each is computed: of several ranks each adds up the pieces that begin in its own elements.
#pragma once

#include <vector>

#include "engine/distributed/owners.h"
#include "engine/tensor/tensor.h"

namespace orrery::nn {

// Returns the pieces of a range of elements, in order.
std::vector<IndexRange> pieces_of(const IndexRange& range, Device device);

class SquareSums {
 public:
  // `ranges`: elements of tensors with the size, dtype and device of `flat`.
  SquareSums(const Tensor& flat, std::vector<IndexRange> ranges);
  // Returns sum x^2 over each range: f64 (ranges), on x's device. The next call overwrites it. With
  // owners, x has the elements of this rank, and gets those of others that its pieces end with.
  const Tensor& of(const Tensor& x, const Owners* owners = nullptr);

 private:
  std::vector<IndexRange> ranges_, pieces_;  // pieces_: of all ranges, in their order
  std::vector<double> squares_;              // of each piece
  Tensor sums_;
};

// Writes sum x^2 to `sum`, one f64 number on the device of x.
void sum_of_squares(const Tensor& x, const Tensor& sum);

}  // namespace orrery::nn
