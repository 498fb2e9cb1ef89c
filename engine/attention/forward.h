// o = sum_j w_j v_j for a block of queries: online softmax, or pointwise weights.  Persistent slots follow the context
// as further tiles.
#pragma once

#include "engine/attention/scores.h"

namespace orrery::detail::attend {
namespace {

// The running state of a block's softmax: per query the largest score so far, and the sum of exp(s - largest).
template <class A>
struct Online {
  A *largest, *sum, *shrink;  // shrink: what the sums of earlier tiles are multiplied by
};

// Scores become m exp(s - largest); without shares m = 1, but for what is hidden already.  The largest score is that of
// the keys with m > 0.  Returns whether earlier tiles have to be shrunk.
template <class A>
bool online_softmax(int64_t keys, int64_t width, A* scores, const A* shares, const Online<A>& state) {
  Mask<A> changed{};
  for (int64_t i = 0; i < width; i += lanes<A>) {
    const Vector<A> before = load(state.largest + i);
    Vector<A> largest = before;
    for (int64_t j = 0; j < keys; ++j) {
      const Vector<A> s = load(scores + j * width + i);
      largest = select<A>(s > largest, s, largest);
    }
    const Vector<A> base = select<A>(largest == -infinity<A>, Vector<A>{}, largest);  // nothing seen yet
    const Vector<A> shrink = exponential<A>(before - base);
    Vector<A> sum = load(state.sum + i) * shrink;
    for (int64_t j = 0; j < keys; ++j) {
      A* const s = scores + j * width + i;
      Vector<A> w = exponential<A>(load(s) - base);
      if (shares) w *= load(shares + j * width + i);
      sum += w;
      store(s, w);
    }
    store(state.largest + i, largest), store(state.sum + i, sum), store(state.shrink + i, shrink);
    changed |= largest != before;
  }
  return any<A>(changed);
}

template <class A>
void scale_rows(Matrix<A> x, int64_t rows, int64_t n, const A* factor) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < n; c += lanes<A>) store(x.row(r) + c, load(x.row(r) + c) * factor[r]);
}

// output [+]= weights^T values
template <class A>
void read_values(const QueryBlock<A>& block, const Keys& keys, const A* weights, Matrix<A> output, bool add,
                 const Workspace<A>& w) {
  const int64_t size = block.p.sizes.value_size;
  const Matrix<const A> values = value_rows(block, keys);
  *w.work += add_product<A>(keys.cover == Cover::all || finite(values, keys.count, size), block.count, size, keys.count,
                            {weights, 1, block.width}, values, output, {.factor = 1, .add = add}, band_of(block, keys));
}

// What a tile adds to the sums of the block.  `begun`: an earlier tile has written to the output.
template <class A>
void read_tile(const QueryBlock<A>& block, const Keys& keys, const Online<A>& state, Matrix<A> output, bool& begun,
               const Workspace<A>& w) {
  const int64_t n = keys.count * block.width;
  compute_scores(block, keys, w);
  if (vanishes(block, keys, w.scores)) return;
  if (block.softmax()) {
    const A* const shares = on_ramp(block, keys) ? w.shares : nullptr;
    const bool grown = online_softmax(keys.count, block.width, w.scores, shares, state);
    if (begun && grown) scale_rows(output, block.count, block.p.sizes.value_size, state.shrink);
  } else {
    pointwise_weights(block, keys, w.scores, w, w.scores);
  }
  if (const A* const kept = dropout_of(block, keys, w)) multiply(w.scores, kept, n);
  read_values(block, keys, w.scores, output, begun, w);
  begun = true;
}

template <class A>
void finish_softmax(const QueryBlock<A>& block, const Online<A>& state, Matrix<A> output) {
  A* const log_sums = state.shrink;
  for (int64_t i = 0; i < block.width; i += lanes<A>) {
    const Vector<A> sum = load(state.sum + i), largest = load(state.largest + i);
    const Mask<A> nothing = sum == A(0);
    store(log_sums + i, select<A>(nothing, splat(-infinity<A>), largest + logarithm<A>(sum)));
    store(state.sum + i, select<A>(nothing, Vector<A>{}, A(1) / sum));
  }
  scale_rows(output, block.count, block.p.sizes.value_size, state.sum);
  for (int64_t i = 0; i < block.count; ++i) block.p.log_sum[block.place() + i] = log_sums[i];
}

template <class A>
void forward(const Problem<A>& p, int64_t sequence, int64_t head, int64_t number, const Workspace<A>& w) {
  const QueryBlock<A> block = query_block_of(p, sequence, head, number * query_block, p.sizes.queries, w);
  const Matrix<A> output = {w.output, p.sizes.value_size};
  const Online<A> state = {w.rows[0], w.rows[1], w.rows[2]};
  for (int64_t i = 0; i < block.width; ++i) state.largest[i] = -infinity<A>, state.sum[i] = 0;
  pack_queries(block, w.query_columns);

  bool begun = false;
  const auto read = [&](const Keys& keys) { read_tile(block, keys, state, output, begun, w); };
  each_tile(block, {0, p.sizes.keys}, read);
  each_tile_of_slots({0, p.sizes.slots}, read);
  if (!begun) fill_rows(output, block.count, p.sizes.value_size);
  if (block.softmax()) finish_softmax(block, state, output);
  const Matrix<A> result = block.of_queries(p.output, p.sizes.value_size);
  for (int64_t r = 0; r < block.count; ++r)
    for (int64_t c = 0; c < p.sizes.value_size; c += lanes<A>) store(result.row(r) + c, load(output.row(r) + c));
}

}  // namespace
}  // namespace orrery::detail::attend
