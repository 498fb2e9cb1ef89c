// The fixed tree that adds up the parts of a step's gradient. Part l of L has the micro-batches share_of(M, L, l). A
// node of n > 1 parts is the sum of its first p parts plus the sum of the rest; p is the largest power of two below n.
// The tree is a function of L alone, so a step's gradient has the same bits wherever its parts are computed.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace orrery {

struct IndexRange {  // indices [begin, end), from 0
  int64_t begin, end;
  int64_t size() const { return end - begin; }
  bool operator==(const IndexRange&) const = default;
};

// Returns share i of `shares` adjacent shares of [0, count); their sizes differ by at most one.
inline IndexRange share_of(int64_t count, int64_t shares, int64_t i) {
  return {count * i / shares, count * (i + 1) / shares};
}

// Returns the micro-batches of a rank, which has its share of a step's parts.
inline IndexRange micro_batches_of(int64_t rank, int64_t ranks, int64_t parts, int64_t micro_batches) {
  const IndexRange share = share_of(parts, ranks, rank);
  return {share_of(micro_batches, parts, share.begin).begin, share_of(micro_batches, parts, share.end - 1).end};
}

class PartTree {
 public:
  explicit PartTree(int64_t parts) : root_{0, parts} {}

  // Returns the two children of a node of at least two parts.
  static std::pair<IndexRange, IndexRange> children_of(const IndexRange& node) {
    const auto first = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(node.size() - 1)));
    return {{node.begin, node.begin + first}, {node.begin + first, node.end}};
  }
  // Returns the fewest nodes that have exactly the parts of `share`, in the order of the parts.
  std::vector<IndexRange> nodes_of(const IndexRange& share) const {
    std::vector<IndexRange> nodes;
    add_nodes(root_, share, nodes);
    return nodes;
  }
  // Returns true if the sum of the two is a node, whose children they are.
  bool are_children(const IndexRange& first, const IndexRange& second) const {
    if (first.end != second.begin) return false;
    IndexRange node = root_;
    while (node.size() > 1) {
      const auto [left, right] = children_of(node);
      if (left == first) return right == second;
      node = second.end <= left.end ? left : right;
    }
    return false;
  }

 private:
  static void add_nodes(const IndexRange& node, const IndexRange& share, std::vector<IndexRange>& nodes) {
    if (node.end <= share.begin || share.end <= node.begin) return;
    if (share.begin <= node.begin && node.end <= share.end) return nodes.push_back(node);
    const auto [left, right] = children_of(node);
    add_nodes(left, share, nodes), add_nodes(right, share, nodes);
  }

  IndexRange root_;
};

// The order of the additions, for nodes that arrive in the order of their parts: a stack of the
// nodes whose sums are not added to another one yet. The caller holds the sums.
class PartStack {
 public:
  explicit PartStack(int64_t parts) : tree_(parts) {}
  // Pushes a node. Returns how often its sum, with what it has been added to, must be added to the
  // sum below it: once for each node that is complete now.
  int64_t push(IndexRange node) {
    int64_t additions = 0;
    for (; !nodes_.empty() && tree_.are_children(nodes_.back(), node); ++additions) {
      node.begin = nodes_.back().begin;
      nodes_.pop_back();
    }
    nodes_.push_back(node);
    return additions;
  }
  void clear() { nodes_.clear(); }
  int64_t size() const { return static_cast<int64_t>(nodes_.size()); }

 private:
  PartTree tree_;
  std::vector<IndexRange> nodes_;
};

}  // namespace orrery
