#include "engine/distributed/gradient_sum.h"

#include <algorithm>
#include <utility>

#include "engine/loops/tensor_sums.h"
#include "engine/tensor/staging.h"

namespace orrery {
namespace {

// The sums of nodes that arrive in the order of their parts, added in place where the tree does so.
class NodeSums {
 public:
  explicit NodeSums(int64_t parts) : stack_(parts) {}
  void push(const IndexRange& node, const Tensor& sum) {
    sums_.push_back(sum);
    for (int64_t additions = stack_.push(node); additions > 0; --additions) {
      const Tensor last = sums_.back();
      sums_.pop_back();
      add_in_place(sums_.back(), last);
    }
  }
  const Tensor& whole() const { return sums_.back(); }

 private:
  PartStack stack_;
  std::vector<Tensor> sums_;
};

}  // namespace

GradientSum::GradientSum(const Tensor& gradient, int64_t parts, IndexRange share)
    : gradient_(gradient), parts_(parts), share_(share), stack_(parts) {
  for (int64_t i = 0; i < buffers_of(parts, share); ++i) buffers_.push_back(Tensor::zeros_like(gradient));
}

void GradientSum::take(int64_t part) {
  if (part == share_.begin) stack_.clear();
  int64_t additions = stack_.push({part, part + 1});
  auto below = static_cast<size_t>(stack_.size() - 1 + additions);  // one above the topmost buffer in use
  if (part == share_.end - 1) {
    for (; additions > 0; --additions) add_in_place(gradient_, buffers_[--below]);
  } else if (additions == 0) {
    buffers_[below].copy_from(gradient_);
  } else {
    add_in_place(buffers_[--below], gradient_);
    for (; additions > 1; --additions, --below) add_in_place(buffers_[below - 1], buffers_[below]);
  }
}

Tensor GradientSum::sum_of(size_t node) const {
  return static_cast<int64_t>(node) + 1 < stack_.size() ? buffers_[node] : gradient_;
}

// Slices travel in pieces. While a piece is added up, the next one arrives.
void GradientSum::add_up(Ranks& ranks, const std::vector<IndexRange>& owned) {
  const int64_t element = bytes_of(gradient_.dtype());
  const int64_t piece = Ranks::piece_bytes / element, me = ranks.rank();
  const auto piece_of = [&](int64_t owner, int64_t k) {
    const IndexRange& range = owned[static_cast<size_t>(owner)];
    return IndexRange{std::min(range.end, range.begin + k * piece), std::min(range.end, range.begin + (k + 1) * piece)};
  };
  int64_t pieces = 0;
  for (const IndexRange& range : owned) pieces = std::max(pieces, (range.size() + piece - 1) / piece);
  std::vector<std::vector<IndexRange>> nodes;  // by rank
  int64_t from_others = 0;
  for (int64_t r = 0; r < ranks.count(); ++r) {
    nodes.push_back(PartTree(parts_).nodes_of(share_of(parts_, ranks.count(), r)));
    if (r != me) from_others += static_cast<int64_t>(nodes.back().size());
  }
  std::vector<HostCopy> mine;  // of this rank's nodes; the last one is `gradient`
  for (size_t node = 0; node < nodes[static_cast<size_t>(me)].size(); ++node) {
    mine.emplace_back(sum_of(node));
    mine.back().fetch(0, gradient_.numel());
  }
  const Tensor arrived = Tensor::empty(Shape{2, from_others, piece}, gradient_.dtype(), Device::cpu);
  std::vector<IndexRange> received;
  const auto receive = [&](int64_t k) {
    const int64_t bytes = piece_of(me, k).size() * element;
    int64_t place = k % 2 * from_others;
    for (int64_t r = 0; r < ranks.count() && bytes > 0; ++r)
      for (size_t i = 0; i < nodes[static_cast<size_t>(r)].size() && r != me; ++i, ++place)
        received.push_back(
            ranks.receive(r, arrived.flat_view(place * piece, Shape{piece}).mutable_raw(), bytes));
  };
  const auto send = [&](int64_t k) {
    for (int64_t i = 1; i < ranks.count(); ++i) {
      const int64_t owner = (me + i) % ranks.count();
      const IndexRange slice = piece_of(owner, k);
      for (const HostCopy& node : mine)
        if (slice.size() > 0)
          ranks.send(owner, node.tensor().flat_view(slice.begin, Shape{slice.size()}).raw(), slice.size() * element);
    }
  };
  const auto add = [&](int64_t k) {
    const IndexRange slice = piece_of(me, k);
    NodeSums sums(parts_);
    int64_t place = k % 2 * from_others;
    for (int64_t r = 0; r < ranks.count(); ++r)
      for (size_t i = 0; i < nodes[static_cast<size_t>(r)].size(); ++i)
        sums.push(nodes[static_cast<size_t>(r)][i],
                  r == me ? mine[i].tensor().flat_view(slice.begin, Shape{slice.size()})
                          : arrived.flat_view(place++ * piece, Shape{slice.size()}));
    const Tensor to = mine.back().tensor().flat_view(slice.begin, Shape{slice.size()});
    if (sums.whole().raw() != to.raw()) to.copy_from(sums.whole());
  };
  ranks.exchange([&] {
    receive(0);
    for (int64_t k = 0; k < pieces; ++k) {
      const std::vector<IndexRange> now = std::exchange(received, {});
      receive(k + 1), send(k);
      for (const IndexRange& each : now) ranks.wait(each);
      if (piece_of(me, k).size() > 0) add(k);
    }
    ranks.wait_for_sends();
  });
  mine.back().send(owned[static_cast<size_t>(me)].begin, owned[static_cast<size_t>(me)].end);
}

int64_t GradientSum::buffers_of(int64_t parts, const IndexRange& share) {
  PartStack stack(parts);
  int64_t most = 0;
  for (int64_t part = share.begin; part < share.end; ++part) {
    stack.push({part, part + 1});
    most = std::max(most, part + 1 < share.end ? stack.size() : stack.size() - 1);
  }
  return most;
}

}  // namespace orrery
