// Row statistics of the weights: a separate pass that recomputes the scores of each tile.
#pragma once

#include "engine/attention/scores.h"

namespace orrery::detail::attention {
namespace {

// The RowSums of a block: one row of the workspace for each member.
template <class A>
struct BlockSums {
  A* const* rows;
  template <class V, class Load>
  static RowSums<V> from(const Load& value) {
    return {value(0), value(1), value(2), value(3), value(4), value(5)};
  }
  RowSums<Vector<A>> at(int64_t i) const {
    return from<Vector<A>>([&](int n) { return load(rows[n] + i); });
  }
  RowSums<A> of_query(int64_t i) const {
    return from<A>([&](int n) { return rows[n][i]; });
  }
  void set(int64_t i, const RowSums<Vector<A>>& c) const {
    store(rows[0] + i, c.sum), store(rows[1] + i, c.positive), store(rows[2] + i, c.p_log_p);
    store(rows[3] + i, c.visible), store(rows[4] + i, c.zeros), store(rows[5] + i, c.largest);
  }
};

// Adds the weights of a tile to the sums; `visible` (keys x width) is 1 or 0.
template <class A>
void add_weights(int64_t keys, int64_t width, const A* weights, const A* visible, const BlockSums<A>& sums) {
  for (int64_t i = 0; i < width; i += lanes<A>) {
    RowSums<Vector<A>> all = sums.at(i), tile;
    tile.largest = all.largest;
    for (int64_t j = 0; j < keys; ++j)
      tile.add(load(weights + j * width + i), load(visible + j * width + i), logarithm_of);
    all.sum += tile.sum, all.positive += tile.positive, all.p_log_p += tile.p_log_p;
    all.visible += tile.visible, all.zeros += tile.zeros, all.largest = tile.largest;
    sums.set(i, all);
  }
}

template <class N, class A = Accumulator<N>>
void add_tile_weights(const QueryBlock<N>& block, const Keys& keys, const A* log_sums, const BlockSums<A>& sums,
                      const Workspace<A>& w) {
  const int64_t n = keys.count * block.width;
  compute_scores(block, keys, w);
  if (block.softmax()) {
    for (int64_t i = 0; i < n; i += lanes<A>)
      store(w.scores + i, exponential<A>(load(w.scores + i) - load(log_sums + i % block.width)));
    if (may_be_on_ramp(block, keys)) apply_mask(w.ramp_values, n, w.scores, w.scores);
  } else {
    pointwise_weights(block, keys, w.scores, w, w.scores);
  }
  A* const visible = w.score_gradients;
  for (int64_t i = 0; i < n; ++i) visible[i] = keys.coverage == Coverage::all || !is_masked(w.ramp_values[i], false);
  add_weights(keys.count, block.width, w.scores, visible, sums);
}

template <class N, class A = Accumulator<N>>
void statistics(const Problem<A>& p, int64_t sequence, int64_t head, int64_t block_index, const Workspace<A>& w) {
  const QueryBlock<N> block = query_block_of<N>(p, sequence, head, block_index * query_block, p.queries, w);
  const BlockSums<A> sums = {w.rows};
  A* const log_sums = w.rows[6];
  for (int64_t i = 0; i < block.width; i += lanes<A>) sums.set(i, {});
  pack_queries(block, w.query_columns);
  if (block.softmax()) load_log_sums(block, log_sums);
  const auto add = [&](const Keys& keys) { add_tile_weights(block, keys, log_sums, sums, w); };
  each_tile(block, {0, p.keys}, add);
  each_tile_of_slots({0, p.slots}, add);
  for (int64_t i = 0; i < block.count; ++i)
    write_statistics(p.statistics, block.row_index() + i, sums.of_query(i), logarithm_of_one<A>);
}

}  // namespace
}  // namespace orrery::detail::attention
