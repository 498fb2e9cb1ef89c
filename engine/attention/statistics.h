// Row statistics of the weights, computed aside from the scores of each tile.
#pragma once

#include "engine/attention/scores.h"

namespace orrery::detail::attend {
namespace {

// Per query: sums of w, of p = max(w, 0) and of p ln p; the numbers of keys seen and of zeros among them; the largest
// w.
template <class A>
struct Counts {
  A *sum, *positive, *logarithms, *seen, *zeros, *largest;
};

// seen (keys x width) is 1 or 0
template <class A>
void count_weights(int64_t keys, int64_t width, const A* weights, const A* seen, const Counts<A>& counts) {
  for (int64_t i = 0; i < width; i += lanes<A>) {
    Vector<A> sum{}, positive{}, logarithms{}, number{}, zeros{}, largest = load(counts.largest + i);
    for (int64_t j = 0; j < keys; ++j) {
      const Vector<A> w = load(weights + j * width + i), one = load(seen + j * width + i);
      const Mask<A> above = w > A(0);
      const Vector<A> p = select<A>(above, w, Vector<A>{});
      sum += w, positive += p, number += one;
      logarithms += select<A>(above, p * logarithm<A>(p), Vector<A>{});
      zeros += select<A>(w == A(0), one, Vector<A>{});
      largest = select<A>((w > largest) & (one > A(0)), w, largest);
    }
    store(counts.sum + i, load(counts.sum + i) + sum), store(counts.positive + i, load(counts.positive + i) + positive);
    store(counts.logarithms + i, load(counts.logarithms + i) + logarithms);
    store(counts.seen + i, load(counts.seen + i) + number), store(counts.zeros + i, load(counts.zeros + i) + zeros);
    store(counts.largest + i, largest);
  }
}

// H = -sum (p/P) ln (p/P) = ln P - (sum p ln p) / P
template <class A>
void write_statistics(const QueryBlock<A>& block, const Counts<A>& counts) {
  const RowStatistics<A>& out = block.p.statistics;
  for (int64_t i = 0; i < block.count; ++i) {
    const int64_t at = block.place() + i;
    const A total = counts.positive[i];
    if (out.sum) out.sum[at] = counts.sum[i];
    if (out.positive_sum) out.positive_sum[at] = total;
    if (out.entropy) out.entropy[at] = total > 0 ? logarithm<A>(splat(total))[0] - counts.logarithms[i] / total : A(0);
    if (out.zero_share) out.zero_share[at] = counts.seen[i] > 0 ? counts.zeros[i] / counts.seen[i] : A(0);
    if (out.maximum) out.maximum[at] = counts.seen[i] > 0 ? counts.largest[i] : A(0);
  }
}

// Counts the weights of a tile.
template <class A>
void count_tile(const QueryBlock<A>& block, const Keys& keys, const A* log_sums, const Counts<A>& counts,
                const Workspace<A>& w) {
  const int64_t n = keys.count * block.width;
  compute_scores(block, keys, w);
  if (block.softmax()) {
    for (int64_t i = 0; i < n; i += lanes<A>)
      store(w.scores + i, exponential<A>(load(w.scores + i) - load(log_sums + i % block.width)));
    if (on_ramp(block, keys)) multiply(w.scores, w.shares, n);
  } else {
    pointwise_weights(block, keys, w.scores, w, w.scores);
  }
  A* const seen = w.score_gradients;
  for (int64_t i = 0; i < n; ++i) seen[i] = keys.cover == Cover::all || w.shares[i] != 0;
  count_weights(keys.count, block.width, w.scores, seen, counts);
}

template <class A>
void statistics(const Problem<A>& p, int64_t sequence, int64_t head, int64_t number, const Workspace<A>& w) {
  const QueryBlock<A> block = query_block_of(p, sequence, head, number * query_block, p.sizes.queries, w);
  const Counts<A> counts = {w.rows[0], w.rows[1], w.rows[2], w.rows[3], w.rows[4], w.rows[5]};
  A* const log_sums = w.rows[6];
  for (int k = 0; k < 6; ++k)
    for (int64_t i = 0; i < block.width; ++i) w.rows[k][i] = k == 5 ? -infinity<A> : A(0);
  pack_queries(block, w.query_columns);
  if (block.softmax()) load_log_sums(block, log_sums);
  const auto count = [&](const Keys& keys) { count_tile(block, keys, log_sums, counts, w); };
  each_tile(block, {0, p.sizes.keys}, count);
  each_tile_of_slots({0, p.sizes.slots}, count);
  write_statistics(block, counts);
}

}  // namespace
}  // namespace orrery::detail::attend
