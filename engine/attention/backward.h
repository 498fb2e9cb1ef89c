// Backward of attention on a CPU, for ranges of queries and keys. Each tile takes five matrix
// products: scores, gradients of weights, dv, dk and dq. Relative-position terms add more.
#pragma once

#include "engine/attention/score_gradients.h"

namespace orrery::detail::attention {
namespace {

// Sets c_i = <do_i, o_i>, FlashAttention's delta.
template <class N, class A = Accumulator<N>>
void load_inner_products(const BackwardBlock<N>& block) {
  const int64_t size = block.p.value_size;
  const Matrix<const Element<N>> outputs = block.query_elements({block.p.output.data, block.p.output.stride}, size);
  for (int64_t i = 0; i < block.width; ++i) {
    Vector<A> products{};
    for (int64_t c = 0; c < size && i < block.count; c += lanes<A>)
      products += load_widened(block.output_gradients.stored.row(i) + c) * load_widened(outputs.row(i) + c);
    block.inner[i] = sum<A>(products);
  }
}

// Loads and packs what the tiles of a block share: q, do, and L, c, dS and dH of its queries.
template <class N, class A = Accumulator<N>>
BackwardBlock<N> prepare(const QueryBlock<N>& block, const Workspace<A>& w) {
  const Problem<A>& p = block.p;
  const int64_t size = p.head_size, value_size = p.value_size;
  const bool needs_span = w.sums.span || (p.span_per_query && p.gradients.span);
  BackwardBlock<N> b{block};
  const auto right = [&](TensorView<const A> tokens, int64_t size, A* memory) {
    const Matrix<const Element<N>> rows = block.query_elements(tokens, size);
    return RightOperand<N>{rows, right_operand_rows<N>(rows, block.count, size, memory),
                           finite(rows, block.count, size)};
  };
  b.queries = right(p.query, size, w.query_rows);
  b.output_gradients = right(p.output_gradient, value_size, w.gradient_rows);
  b.statistics = p.statistics_gradients.sum_gradient || p.statistics_gradients.entropy_gradient;
  b.log_sums = w.rows[0], b.inner = w.rows[1];
  b.sum_gradients = w.rows[2], b.entropy_factors = w.rows[3], b.entropy_offsets = w.rows[4];
  b.span_gradients = needs_span ? w.span_gradients : nullptr;
  pack_queries(block, w.query_columns);
  pack_columns<N>(b.output_gradients.stored, b.count, value_size, A(1), b.width, w.gradient_columns);
  if (b.statistics) load_statistics(b);
  for (int64_t i = 0; i < b.width && needs_span; ++i) b.span_gradients[i] = 0;
  if (b.softmax()) load_log_sums(block, b.log_sums), load_inner_products(b);
  return b;
}

// The rows of dq, dk or dv that a task adds to, for one head: those of the gradient tensor, or f32
// sums of the task, which finish() rounds into the tensor.
template <class N>
struct GradientRows {
  using A = Accumulator<N>;
  TensorView<A> tokens;
  int64_t first, head, size;  // row 0 belongs to token `first`
  A* own;                     // sums of the task; null: none

  Matrix<A> from(int64_t row) const {
    return own ? Matrix<A>{own + row * size, size} : QueryBlock<N>::rows(tokens, first + row, head, size);
  }
  void clear(Range range) const {
    if (tokens.data) fill_rows(from(range.begin), range.end - range.begin, size);
  }
  void finish(Range range) const {
    if (!own) return;
    const TensorView<Element<N>> rounded = {reinterpret_cast<Element<N>*>(tokens.data), tokens.stride};
    const Matrix<Element<N>> rows = QueryBlock<N>::rows(rounded, first, head, size);
    for (int64_t r = range.begin; r < range.end; ++r)
      for (int64_t c = 0; c < size; c += lanes<A>) store_rounded(rows.row(r) + c, load(own + r * size + c));
  }
};
template <class N, class A = Accumulator<N>>
GradientRows<N> query_gradients(const QueryBlock<N>& block, const Workspace<A>& w) {
  const Problem<A>& p = block.p;
  return {p.gradients.query, block.sequence * p.queries + block.first, block.head, p.head_size, w.query_sums};
}
template <class N, class A = Accumulator<N>>
GradientRows<N> key_gradients(const Problem<A>& p, int64_t sequence, int64_t head, bool slots, const Workspace<A>& w) {
  return {slots ? p.gradients.slot_key : p.gradients.key, slots ? 0 : sequence * p.keys, head, p.head_size, w.key_sums};
}
template <class N, class A = Accumulator<N>>
GradientRows<N> value_gradients(const Problem<A>& p, int64_t sequence, int64_t head, bool slots,
                                const Workspace<A>& w) {
  return {slots ? p.gradients.slot_value : p.gradients.value, slots ? 0 : sequence * p.keys, head, p.value_size,
          w.value_sums};
}

// Adds a tile's terms to dv, dk, dq and the relative-position gradients. `differentiate` has left
// d_ij w_ij in w.scores and dt_ij in w.score_gradients:
//   dv_j += sum_i d_ij w_ij do_i,   dk_j += scale sum_i dt_ij q_i,   dq_i += scale sum_j dt_ij k_j
template <class N, class A = Accumulator<N>>
void add_gradients(const BackwardBlock<N>& block, const Keys& keys, const Workspace<A>& w) {
  const Problem<A>& p = block.p;
  const int64_t size = p.head_size, value_size = p.value_size;
  const Band band = band_of(block, keys);
  const bool all = keys.coverage == Coverage::all;  // no weight is 0 by the mask, so none hides NaN or infinity
  const auto unmasked = [&](RightOperand<N> rows) { return rows.multiplies_zeros |= all, rows; };
  const Update<A> unscaled = {.scale = 1, .add = true}, scaled = {p.scale, true};
  if (const auto dv = value_gradients<N>(p, block.sequence, block.kv_head, keys.slots, w); dv.tokens.data)
    add_product_along_width<N>(w.scores, keys.count, block.width, block.count, unmasked(block.output_gradients),
                               value_size, dv.from(keys.first), unscaled, mirrored(band), w);
  if (const auto dk = key_gradients<N>(p, block.sequence, block.kv_head, keys.slots, w); dk.tokens.data)
    add_product_along_width<N>(w.score_gradients, keys.count, block.width, block.count, unmasked(block.queries), size,
                               dk.from(keys.first), scaled, mirrored(band), w);
  Matrix<A> dq = {nullptr, 0};
  if (p.gradients.query.data) {
    dq = query_gradients(block, w).from(0);
    const Matrix<const Element<N>> rows = key_rows(block, keys);
    const RightOperand<N> k = {rows, right_after_left_rows<N>(rows, keys.count, size, w.key_rows),
                               all || finite(rows, keys.count, size)};
    add_product_along_rows<N>(w.score_gradients, keys.count, block.width, block.count, k, size, dq, scaled, band, w);
  }
  if (!keys.slots && p.distances > 0) add_distance_gradients(block, keys, block.queries, w.score_gradients, dq, w);
}

// Adds dz = sum dm / R, R the ramp, to the gradients of the spans.
template <class N, class A = Accumulator<N>>
void write_span_gradients(const BackwardBlock<N>& block, const Workspace<A>& w) {
  if (!block.span_gradients) return;
  for (int64_t i = 0; i < block.count; ++i) {
    const A dz = block.span_gradients[i] / block.p.ramp;
    w.sums.span ? w.sums.span[block.head] += dz : block.p.gradients.span[block.row_index() + i] += dz;
  }
}

template <class N, class A = Accumulator<N>>
void clear_span_gradients(const QueryBlock<N>& block) {
  for (int64_t i = 0; i < block.count && block.p.span_per_query && block.p.gradients.span; ++i)
    block.p.gradients.span[block.row_index() + i] = 0;
}

// Adds the gradients of a block of queries and the keys of a call.
template <class N, class A = Accumulator<N>>
void add_tiles(const QueryBlock<N>& given, const BackwardCall& call, const Workspace<A>& w) {
  const Range keys = call.slots ? call.keys : keys_of_block(given.mask, given.first, given.count, call.keys);
  if (keys.begin >= keys.end) return;
  const BackwardBlock<N> block = prepare(given, w);
  const auto tile = [&](const Keys& keys) {
    if (differentiate(block, keys, w)) add_gradients(block, keys, w);
  };
  call.slots ? each_tile_of_slots(call.keys, tile) : each_tile(block, call.keys, tile);
  write_span_gradients(block, w);
}

template <class N, class A = Accumulator<N>>
void backward(const Problem<A>& p, const BackwardCall& call, const Workspace<A>& w) {
  const int64_t group = p.query_heads / p.kv_heads;
  const GradientRows<N> dk = key_gradients<N>(p, call.sequence, call.kv_head, call.slots, w),
                        dv = value_gradients<N>(p, call.sequence, call.kv_head, call.slots, w);
  if (call.clear_keys) dk.clear(call.keys), dv.clear(call.keys);
  for (int64_t head = call.kv_head * group; head < (call.kv_head + 1) * group; ++head)
    for (int64_t query = call.queries.begin; query < call.queries.end; query += query_block) {
      const QueryBlock<N> block = query_block_of<N>(p, call.sequence, head, query, call.queries.end, w);
      const GradientRows<N> dq = query_gradients(block, w);
      if (call.clear_queries) dq.clear({0, block.count}), clear_span_gradients(block);
      add_tiles(block, call, w);
      dq.finish({0, block.count});
    }
  dk.finish(call.keys), dv.finish(call.keys);
}

}  // namespace
}  // namespace orrery::detail::attention
