// Forward of attention on a CPU: o = sum_j w_j v_j for a block of queries, with online softmax or
// pointwise weights. Persistent slots are further tiles after the context.
#pragma once

#include "engine/attention/scores.h"

namespace orrery::detail::attention {
namespace {

// The state of the softmax of a block: one OnlineSoftmax for each query.
template <class A>
struct BlockSoftmax {
  A *largest, *sum, *shrink;  // shrink: factor for the sums of earlier tiles
};

// Replaces scores by m exp(s - largest). Without `ramp_values` m = 1; masked scores are already
// minus infinity. Returns true if the sums of earlier tiles must be rescaled.
template <class A>
bool online_softmax(int64_t keys, int64_t width, A* scores, const A* ramp_values, const BlockSoftmax<A>& state) {
  Mask<A> changed{};
  for (int64_t i = 0; i < width; i += lanes<A>) {
    const Vector<A> before = load(state.largest + i);
    OnlineSoftmax<Vector<A>> row{before, load(state.sum + i)};
    Vector<A> largest = before;
    for (int64_t j = 0; j < keys; ++j) {
      const Vector<A> s = load(scores + j * width + i);
      largest = select<A>(s > largest, s, largest);
    }
    const Vector<A> shrink = row.update_max(largest, exponential_of);
    Vector<A> tile_sum{};  // one long sum would lose precision: its error grows with sqrt(keys)
    for (int64_t j = 0; j < keys; ++j) {
      A* const s = scores + j * width + i;
      Vector<A> w = exponential<A>(load(s) - row.base);
      if (ramp_values) w *= mask_weight(load(ramp_values + j * width + i));
      tile_sum += w;
      store(s, w);
    }
    row.sum += tile_sum;
    store(state.largest + i, largest), store(state.sum + i, row.sum), store(state.shrink + i, shrink);
    changed |= largest != before;
  }
  return any<A>(changed);
}

template <class A>
void scale_rows(Matrix<A> x, int64_t rows, int64_t n, const A* scales) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < n; c += lanes<A>) store(x.row(r) + c, load(x.row(r) + c) * scales[r]);
}

// output [+]= weights^T values
template <class N, class A = Accumulator<N>>
void add_weighted_values(const QueryBlock<N>& block, const Keys& keys, const A* weights, Matrix<A> output, bool add,
                         const Workspace<A>& w) {
  const int64_t size = block.p.value_size;
  const Matrix<const Element<N>> rows = value_rows(block, keys);
  const RightOperand<N> values = {rows, right_operand_rows<N>(rows, keys.count, size, w.value_rows),
                                  keys.coverage == Coverage::all || finite(rows, keys.count, size)};
  add_product_along_rows<N>(weights, keys.count, block.width, block.count, values, size, output,
                            {.scale = 1, .add = add}, band_of(block, keys), w);
}

// Adds a tile to the sums of the block. `begun`: an earlier tile has written to the output.
template <class N, class A = Accumulator<N>>
void attend_tile(const QueryBlock<N>& block, const Keys& keys, const BlockSoftmax<A>& state, Matrix<A> output,
                 bool& begun, const Workspace<A>& w) {
  const int64_t n = keys.count * block.width;
  compute_scores(block, keys, w);
  if (has_no_positive_score(block, keys, w.scores)) return;
  if (block.softmax()) {
    const A* const ramp_values = may_be_on_ramp(block, keys) ? w.ramp_values : nullptr;
    const bool grown = online_softmax(keys.count, block.width, w.scores, ramp_values, state);
    if (begun && grown) scale_rows(output, block.count, block.p.value_size, state.shrink);
  } else {
    pointwise_weights(block, keys, w.scores, w, w.scores);
  }
  if (const A* const factors = dropout_of(block, keys, w)) multiply(w.scores, factors, n);
  add_weighted_values(block, keys, w.scores, output, begun, w);
  begun = true;
}

// Divides the output by the sum of the weights and writes L.
template <class N, class A = Accumulator<N>>
void finish_softmax(const QueryBlock<N>& block, const BlockSoftmax<A>& state, Matrix<A> output) {
  A* const log_sums = state.shrink;
  for (int64_t i = 0; i < block.width; i += lanes<A>) {
    const OnlineSoftmax<Vector<A>> row{load(state.largest + i), load(state.sum + i)};
    store(log_sums + i, row.log_sum(row.sum, logarithm_of));
    store(state.sum + i, select<A>(row.sum == A(0), Vector<A>{}, A(1) / row.sum));
  }
  scale_rows(output, block.count, block.p.value_size, state.sum);
  for (int64_t i = 0; i < block.count; ++i) block.p.log_sum[block.row_index() + i] = log_sums[i];
}

template <class N, class A = Accumulator<N>>
void forward(const Problem<A>& p, int64_t sequence, int64_t head, int64_t block_index, const Workspace<A>& w) {
  const QueryBlock<N> block = query_block_of<N>(p, sequence, head, block_index * query_block, p.queries, w);
  const Matrix<A> output = {w.output, p.value_size};
  const BlockSoftmax<A> state = {w.rows[0], w.rows[1], w.rows[2]};
  for (int64_t i = 0; i < block.width; ++i) state.largest[i] = -infinity<A>, state.sum[i] = 0;
  pack_queries(block, w.query_columns);

  bool begun = false;
  const auto attend = [&](const Keys& keys) { attend_tile(block, keys, state, output, begun, w); };
  each_tile(block, {0, p.keys}, attend);
  each_tile_of_slots({0, p.slots}, attend);
  if (!begun) fill_rows(output, block.count, p.value_size);
  if (block.softmax()) finish_softmax(block, state, output);
  const TensorView<Element<N>> written = {reinterpret_cast<Element<N>*>(p.output.data), p.output.stride};
  const Matrix<Element<N>> result = block.query_rows_of(written, p.value_size);
  for (int64_t r = 0; r < block.count; ++r)
    for (int64_t c = 0; c < p.value_size; c += lanes<A>) store_rounded(result.row(r) + c, load(output.row(r) + c));
}

}  // namespace
}  // namespace orrery::detail::attention
