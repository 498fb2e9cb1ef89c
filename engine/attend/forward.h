// o = sum_j w_j v_j for a block of queries: online softmax, or pointwise weights.
#pragma once

#include "engine/attend/kernels.h"

namespace orrery::detail::attend {
namespace {

// The running state of a block's softmax: per query the largest score so far, and the sum of exp(s - largest).
template <class A>
struct Online {
  A *largest, *sum, *shrink;  // shrink: what the sums of earlier tiles are multiplied by
};

// Scores become exp(s - largest).  Returns whether earlier tiles have to be shrunk.
template <class A>
bool online_softmax(int64_t keys, int64_t width, A* scores, const Online<A>& state) {
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
      const Vector<A> w = exponential<A>(load(s) - base);
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
void read_values(const QueryBlock<A>& block, const Keys& keys, const A* weights, Matrix<A> output, bool add) {
  const int64_t size = block.p.sizes.value_size;
  const Matrix<const A> values = block.of_keys(block.p.inputs.value, keys.first, size);
  const Factor<A> transposed = {weights, 1, block.width};
  if (keys.cover == Cover::all || finite<A>(values, keys.count, size))
    product<A>(block.count, size, keys.count, transposed, values, output, add, band_of(block, keys));
  else
    selective_product<A>(block.count, size, keys.count, transposed, values, output, add);
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
  const QueryBlock<A> block = query_block_of(p, sequence, head, number * query_block, p.sizes.queries);
  const Matrix<A> output = {w.output, p.sizes.value_size};
  const Online<A> state = {w.rows[0], w.rows[1], w.rows[2]};
  for (int64_t i = 0; i < block.width; ++i) state.largest[i] = -infinity<A>, state.sum[i] = 0;
  pack_queries(block, w.query_columns);

  bool begun = false;
  const Range range = visible_keys(block.see, block.first, block.count, {0, p.sizes.keys});
  for (int64_t key = range.begin; key < range.end; key += key_block) {
    const Keys keys = keys_of(block, key, range.end);
    if (keys.cover == Cover::none) continue;
    compute_scores(block, keys, w.query_columns, w.scores);
    if (vanishes(block, keys, w.scores)) continue;
    if (block.softmax()) {
      const bool grown = online_softmax(keys.count, block.width, w.scores, state);
      if (begun && grown) scale_rows(output, block.count, p.sizes.value_size, state.shrink);
    } else {
      p.weighting.values(p.weighting.context, w.scores, w.scores, keys.count * block.width);
      hide(block, keys, w.scores, A(0));
    }
    if (p.dropout_factors) {
      p.dropout_factors(p, block.place(), block.width, key, keys.count, w.factors);
      multiply(w.scores, w.factors, keys.count * block.width);
    }
    read_values(block, keys, w.scores, output, begun);
    begun = true;
  }
  if (!begun) fill_rows(output, block.count, p.sizes.value_size);
  if (block.softmax()) finish_softmax(block, state, output);
  const Matrix<A> result = block.of_queries(p.output, p.sizes.value_size);
  for (int64_t r = 0; r < block.count; ++r)
    for (int64_t c = 0; c < p.sizes.value_size; c += lanes<A>) store(result.row(r) + c, load(output.row(r) + c));
}

}  // namespace
}  // namespace orrery::detail::attend
