// The tree over the parts of a step, and the sum of a step's gradient over its parts.
#include "engine/distributed/part_tree.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>

#include "engine/distributed/gradient_sum.h"
#include "engine/system/pool.h"
#include "engine/tensor/storage.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using orrery::testing::random_tensor;

namespace {

constexpr int64_t max_parts = 64;

// The tree by its definition, in plain recursion; join(left, right) makes the value of a node.
template <class Value, class Leaf, class Join>
Value by_recursion(int64_t begin, int64_t end, const Leaf& leaf, const Join& join) {
  if (end - begin == 1) return leaf(begin);
  int64_t first = 1;
  while (2 * first < end - begin) first *= 2;
  const Value left = by_recursion<Value>(begin, begin + first, leaf, join);
  return join(left, by_recursion<Value>(begin + first, end, leaf, join));
}
std::string sum_by_recursion(int64_t begin, int64_t end) {
  return by_recursion<std::string>(
      begin, end, [](int64_t part) { return std::to_string(part); },
      [](const std::string& a, const std::string& b) { return "(" + a + "+" + b + ")"; });
}

// Returns all nodes of the tree.
std::vector<IndexRange> all_nodes(int64_t parts) {
  std::vector<IndexRange> nodes;
  by_recursion<IndexRange>(
      0, parts, [&](int64_t part) { return nodes.emplace_back(IndexRange{part, part + 1}); },
      [&](const IndexRange& a, const IndexRange& b) { return nodes.emplace_back(IndexRange{a.begin, b.end}); });
  return nodes;
}
// Returns the smallest number of nodes that cover a share exactly, by trying all.
size_t fewest_nodes(const std::vector<IndexRange>& nodes, const IndexRange& share) {
  std::vector<size_t> fewest(static_cast<size_t>(share.size()) + 1, 1000);  // for the parts before each end
  fewest[0] = 0;
  for (int64_t end = share.begin + 1; end <= share.end; ++end)
    for (const IndexRange& node : nodes)
      if (node.end == end && node.begin >= share.begin) {
        size_t& best = fewest[static_cast<size_t>(end - share.begin)];
        best = std::min(best, 1 + fewest[static_cast<size_t>(node.begin - share.begin)]);
      }
  return fewest.back();
}

}  // namespace

TEST_CASE("part tree: shares are adjacent and cover all, in order, for all counts to 64") {
  for (int64_t count = 1; count <= max_parts; ++count)
    for (int64_t shares = 1; shares <= count; ++shares) {
      int64_t next = 0;
      for (int64_t i = 0; i < shares; ++i) {
        const IndexRange share = share_of(count, shares, i);
        CHECK(share.begin == next);
        CHECK((share.size() == count / shares || share.size() == (count + shares - 1) / shares));
        next = share.end;
      }
      CHECK(next == count);
    }
}

TEST_CASE("part tree: a share is the fewest nodes that cover it in order, for all parts to 64 and shares of them") {
  for (int64_t parts = 1; parts <= max_parts; ++parts) {
    const PartTree tree(parts);
    const std::vector<IndexRange> all = all_nodes(parts);
    for (int64_t shares = 1; shares <= parts; ++shares)
      for (int64_t i = 0; i < shares; ++i) {
        const IndexRange share = share_of(parts, shares, i);
        const std::vector<IndexRange> nodes = tree.nodes_of(share);
        CAPTURE(parts);
        CAPTURE(share.begin);
        CAPTURE(share.end);
        int64_t next = share.begin;
        for (const IndexRange& node : nodes) {
          CHECK(node.begin == next);
          CHECK(std::find(all.begin(), all.end(), node) != all.end());
          next = node.end;
        }
        CHECK(next == share.end);
        CHECK(nodes.size() == fewest_nodes(all, share));
        if (parts % shares == 0 && (parts / shares & (parts / shares - 1)) == 0) CHECK(nodes.size() == 1);
      }
  }
}

TEST_CASE("part tree: two nodes are children of a node only as the definition says, for all parts to 64") {
  for (int64_t parts = 1; parts <= max_parts; ++parts) {
    const PartTree tree(parts);
    const std::vector<IndexRange> all = all_nodes(parts);
    std::map<int64_t, std::map<int64_t, int64_t>> second;  // by begin and end of a first child: end of its sibling
    by_recursion<IndexRange>(
        0, parts, [](int64_t part) { return IndexRange{part, part + 1}; },
        [&](const IndexRange& a, const IndexRange& b) {
          second[a.begin][a.end] = b.end;
          return IndexRange{a.begin, b.end};
        });
    for (const IndexRange& a : all)
      for (const IndexRange& b : all)
        CHECK(tree.are_children(a, b) == (a.end == b.begin && second[a.begin][a.end] == b.end));
  }
}

TEST_CASE("part tree: nodes of shares add up as plain recursion does, for all parts to 64 and shares of them") {
  for (int64_t parts = 1; parts <= max_parts; ++parts)
    for (int64_t shares = 1; shares <= parts; ++shares) {
      PartStack stack(parts);
      std::vector<std::string> sums;
      for (int64_t i = 0; i < shares; ++i)
        for (const IndexRange& node : PartTree(parts).nodes_of(share_of(parts, shares, i))) {
          sums.push_back(sum_by_recursion(node.begin, node.end));
          for (int64_t additions = stack.push(node); additions > 0; --additions) {
            const std::string second = sums.back();
            sums.pop_back();
            sums.back() = "(" + sums.back() + "+" + second + ")";
          }
          CHECK(stack.size() == static_cast<int64_t>(sums.size()));
        }
      CAPTURE(parts);
      CAPTURE(shares);
      CHECK(sums == std::vector<std::string>{sum_by_recursion(0, parts)});
    }
}

TEST_CASE("gradient sum: bits are those of plain recursion, in floor(log2) buffers, for all parts to 64") {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64})
    for (int64_t parts = 1; parts <= max_parts; ++parts) {
      const auto part_sum = [&](int64_t part) { return random_tensor({37}, static_cast<int>(part), dtype); };
      const Tensor gradient = Tensor::zeros({37}, dtype);
      const int64_t before = memory_use(Device::cpu).allocated;
      GradientSum sum(gradient, parts, {0, parts});
      int64_t buffers = 0;
      while (int64_t{2} << buffers <= parts) ++buffers;
      CHECK(GradientSum::buffers_of(parts, {0, parts}) == buffers);
      CHECK(memory_use(Device::cpu).allocated - before == buffers * Pool::block_size(gradient.bytes()));
      const Tensor expected = by_recursion<Tensor>(0, parts, part_sum, [](const Tensor& a, const Tensor& b) {
        const std::vector<double> x = a.to_vector(), y = b.to_vector();
        std::vector<double> z(x.size());
        for (size_t i = 0; i < x.size(); ++i)
          z[i] = x[i] + y[i];  // Tensor::from rounds it to f32 once, as an addition of f32 does
        return Tensor::from(a.shape(), z, a.dtype());
      });
      for (int step = 0; step < 3; ++step) {
        const int64_t end = step == 1 ? (parts + 1) / 2 : parts;  // the second step stops half-way
        for (int64_t part = 0; part < end; ++part) {
          gradient.copy_from(part_sum(part));
          sum.take(part);
        }
        CAPTURE(parts);
        if (step != 1) CHECK(gradient.to_vector() == expected.to_vector());
      }
    }
}

TEST_CASE("part tree: every micro-batch is that of one rank") {
  for (const int64_t ranks : {1, 2, 3, 8}) {
    int64_t end = 0;
    for (int64_t r = 0; r < ranks; ++r) {
      const IndexRange its = micro_batches_of(r, ranks, 8, 11);
      CHECK(its.begin == end);
      CHECK(its.size() > 0);
      end = its.end;
    }
    CHECK(end == 11);
  }
}
