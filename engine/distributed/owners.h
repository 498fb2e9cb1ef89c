// Which rank updates which elements of flat tensors (ZeRO-1: each element has one owner, which alone has its optimizer
// state), and how the others get what an owner has computed. All functions are called by all ranks together.
#pragma once

#include <span>
#include <vector>

#include "engine/distributed/part_tree.h"
#include "engine/distributed/ranks.h"
#include "engine/tensor/tensor.h"

namespace orrery {

class Owners {
 public:
  // owned: by rank, adjacent ranges of elements
  Owners(Ranks& ranks, std::vector<IndexRange> owned) : ranks_(ranks), owned_(std::move(owned)) {}
  const std::vector<IndexRange>& owned() const { return owned_; }
  const IndexRange& mine() const { return owned_[static_cast<size_t>(ranks_.rank())]; }
  Ranks& ranks() const { return ranks_; }

  // All ranks get all elements of x, a tensor of as many elements, from their owners.
  void gather(const Tensor& x) const;
  // `tensor` has the elements of flat tensors from `begin` on. Rank 0 gets them from their owners, or
  // the owners theirs from rank 0.
  void move_state(const Tensor& tensor, int64_t begin, bool to_first) const;

  // Ranges of elements, such as the blocks of a sum, belong to the rank of their first element;
  // they are in order; for tensors on the CPU. complete: it gets the elements of x that others own. share: all get the
  // numbers that these ranks have computed, one for each range.
  bool is_mine(const IndexRange& range) const { return owner_of(range) == ranks_.rank(); }
  void complete(const Tensor& x, std::span<const IndexRange> ranges) const;
  void share(std::span<const IndexRange> ranges, std::span<double> numbers) const;

 private:
  int64_t owner_of(const IndexRange& range) const;
  // Sends elements [part.begin, part.end) of flat tensors, of which `tensor` has those from `begin` on.
  // The caller then waits for what `received` names, and for the sends.
  void move(const Tensor& tensor, int64_t begin, const IndexRange& part, int64_t from, int64_t to,
            std::vector<IndexRange>& received) const;
  void finish(const std::vector<IndexRange>& received) const;

  Ranks& ranks_;
  std::vector<IndexRange> owned_;
};

// Copies the memory of a tensor of rank 0 to all ranks.
void broadcast(Ranks& ranks, const Tensor& x);

}  // namespace orrery
