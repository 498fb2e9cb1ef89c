// The query block of a head and its tiles of keys, shared by forward, backward and statistics.
#pragma once

#include "engine/attention/mask.h"

namespace orrery::detail::attention {
namespace {

template <class A>
constexpr A infinity = A(__builtin_inf());
constexpr auto exponential_of = [](auto x) __attribute__((always_inline)) { return exponential<Lane<decltype(x)>>(x); };
constexpr auto logarithm_of = [](auto x) __attribute__((always_inline)) { return logarithm<Lane<decltype(x)>>(x); };
template <class A>
constexpr auto logarithm_of_one = [](A x) { return logarithm<A>(splat(x))[0]; };

template <class N>
struct QueryBlock {
  using A = Accumulator<N>;
  const Problem<A>& p;
  BlockMask mask;
  const A* spans;  // null without a span
  int64_t sequence, head, kv_head;
  int64_t first, count;  // queries
  int64_t width;         // count rounded up to whole vectors

  bool softmax() const { return p.weighting.softmax(); }
  const A* parameters() const { return p.parameters + head * p.parameter_count; }  // of F
  template <class B>  // rows of a head in (batch, n, heads, size), from token `token` of the batch on
  static Matrix<B> rows(TensorView<B> tokens, int64_t token, int64_t head, int64_t size) {
    return {tokens.data + token * tokens.stride + head * size, tokens.stride};
  }
  template <class B>
  Matrix<B> query_rows_of(TensorView<B> tokens, int64_t size) const {
    return rows(tokens, sequence * p.queries + first, head, size);
  }
  // Casts inputs to the real element type, which may be bf16 behind pointers to float.
  static TensorView<const Element<N>> as_elements(TensorView<const A> tokens) {
    return {reinterpret_cast<const Element<N>*>(tokens.data), tokens.stride};
  }
  Matrix<const Element<N>> query_elements(TensorView<const A> tokens, int64_t size) const {
    return query_rows_of(as_elements(tokens), size);
  }
  // Returns the index of the first query in (batch, heads, queries).
  int64_t row_index() const { return (sequence * p.query_heads + head) * p.queries + first; }
};

template <class N, class A = Accumulator<N>>
QueryBlock<N> query_block_of(const Problem<A>& p, int64_t sequence, int64_t head, int64_t first, int64_t end,
                             const Workspace<A>& w) {
  const int64_t count = minimum(query_block, end - first);
  QueryBlock<N> block{.p = p,
                      .mask = block_mask(p, sequence),
                      .spans = p.span ? w.spans : nullptr,
                      .sequence = sequence,
                      .head = head,
                      .kv_head = head / (p.query_heads / p.kv_heads),
                      .first = first,
                      .count = count,
                      .width = round_up(count, lanes<A>)};
  if (!block.spans) return block;
  load_spans(p, head, block.row_index(), count, block.width, w.spans);
  narrow_to_spans(w.spans, count, p.ramp, block.mask);
  return block;
}

// The keys, or persistent slots, of a tile: [first, first + count).
struct Keys {
  int64_t first, count;
  Coverage coverage;
  bool slots;

  int64_t end() const { return first + count; }
};

template <class N, class A = Accumulator<N>>
Keys keys_of(const QueryBlock<N>& block, int64_t first, int64_t end) {
  int64_t count = minimum(key_block, end - first);
  const auto is_hidden = [&](int64_t key) {
    return coverage_in_table(block.mask, static_cast<int>(block.first), static_cast<int>(block.count),
                             static_cast<int>(key), MaskView::tile) == Coverage::none;
  };
  // The next tile begins beyond a half that the table hides.
  if (block.mask.bits && count > MaskView::tile && (is_hidden(first) || is_hidden(first + MaskView::tile)))
    count = MaskView::tile;
  return {first, count, tile_coverage(block.mask, block.first, block.count, first, count), false};
}

// Calls tile(keys) for the tiles of a block with keys in `range` that are not entirely masked.
template <class N, class Tile>
void each_tile(const QueryBlock<N>& block, Range range, const Tile& tile) {
  const Range found = keys_of_block(block.mask, block.first, block.count, range);
  for (Keys keys{found.begin, 0, Coverage::none, false}; keys.end() < found.end;) {
    keys = keys_of(block, keys.end(), found.end);
    if (keys.coverage != Coverage::none) tile(keys);
  }
}
template <class Tile>
void each_tile_of_slots(Range range, const Tile& tile) {
  for (int64_t slot = range.begin; slot < range.end; slot += key_block)
    tile(Keys{slot, minimum(key_block, range.end - slot), Coverage::all, true});
}

// Returns the tile's rows of `tokens`, a tensor of the context or of the slots.
template <class N, class B>
Matrix<B> rows_of(const QueryBlock<N>& block, const Keys& keys, TensorView<B> tokens, int64_t size) {
  const int64_t before = keys.slots ? 0 : block.sequence * block.p.keys;
  return block.rows(tokens, before + keys.first, block.kv_head, size);
}
template <class N>
Matrix<const Element<N>> key_rows(const QueryBlock<N>& block, const Keys& keys) {
  return rows_of(block, keys, block.as_elements(keys.slots ? block.p.slot_key : block.p.key), block.p.head_size);
}
template <class N>
Matrix<const Element<N>> value_rows(const QueryBlock<N>& block, const Keys& keys) {
  return rows_of(block, keys, block.as_elements(keys.slots ? block.p.slot_value : block.p.value), block.p.value_size);
}

template <class N, class A = Accumulator<N>>
Band band_of(const QueryBlock<N>& block, const Keys& keys) {
  return keys.coverage == Coverage::all ? full_band : tile_band(block.mask, block.first, keys.first);
}

// Returns true if keys of the tile may be on the ramp.
template <class N, class A = Accumulator<N>>
bool may_be_on_ramp(const QueryBlock<N>& block, const Keys& keys) {
  return block.spans && keys.coverage == Coverage::some;
}

// tile (keys x width) = scale B C. B has a row of `rows` per key, from left_operand_rows; C is
// `columns`, a transposed copy. Masked elements may be left unwritten.
template <class N, class A = Accumulator<N>>
void transposed_product(const QueryBlock<N>& block, const Keys& keys, Matrix<const A> rows, int64_t size,
                        const A* columns, A scale, A* tile, const Workspace<A>& w) {
  *w.multiply_adds +=
      product<N>(keys.count, block.width, size, {rows.data, rows.stride, 1}, {columns, block.width},
                 {tile, block.width}, {.scale = scale, .add = false}, full_band, mirrored(band_of(block, keys)));
}

// The right operand of a product: rows as stored, and `packed` in the layout of right_operand_rows.
template <class N>
struct RightOperand {
  Matrix<const Element<N>> stored;
  Matrix<const Accumulator<N>> packed;
  bool multiplies_zeros;  // no NaN or infinity, or they may reach every element; else zeros of A are skipped
};

// C (width, n) [+]= scale A^T B and C (rows, n) [+]= scale A B for computed values A, which
// has (rows, width) elements, zero outside `inner`.
template <class N, class A = Accumulator<N>>
void add_product_along_rows(const A* a, int64_t rows, int64_t width, int64_t count, const RightOperand<N>& b, int64_t n,
                            Matrix<A> c, Update<A> update, Band inner, const Workspace<A>& w) {
  if (b.multiplies_zeros)
    *w.multiply_adds += product<N>(count, n, rows, along_rows<N>(a, rows, width, w.pairs), b.packed, c, update, inner);
  else
    *w.multiply_adds += selective_product<A>(count, n, rows, {a, 1, width}, b.stored, c, update);
}
template <class N, class A = Accumulator<N>>
void add_product_along_width(const A* a, int64_t rows, int64_t width, int64_t count, const RightOperand<N>& b,
                             int64_t n, Matrix<A> c, Update<A> update, Band inner, const Workspace<A>& w) {
  if (b.multiplies_zeros)
    *w.multiply_adds +=
        product<N>(rows, n, count, along_width<N>(a, rows, width, count, w.pairs), b.packed, c, update, inner);
  else
    *w.multiply_adds += selective_product<A>(rows, n, count, {a, width, 1}, b.stored, c, update);
}

// Returns true if no score is positive or NaN.
template <class A>
bool none_positive(const A* scores, int64_t n) {
  Mask<A> found{};
  for (int64_t i = 0; i < n; i += lanes<A>) found |= ~(load(scores + i) <= A(0));
  return !any<A>(found);
}

template <class N, class A = Accumulator<N>>
bool has_no_positive_score(const QueryBlock<N>& block, const Keys& keys, const A* scores) {
  return block.p.weighting.zero_below_zero && none_positive(scores, keys.count * block.width);
}

template <class A>
void multiply(A* x, const A* y, int64_t n) {
  for (int64_t i = 0; i < n; i += lanes<A>) store(x + i, load(x + i) * load(y + i));
}

// y = m x, and 0 where m = 0 for any x, NaN too; y may be x
template <class A>
void apply_mask(const A* ramp_values, int64_t n, const A* x, A* y) {
  for (int64_t i = 0; i < n; i += lanes<A>)
    store(y + i, times_mask_weight(mask_weight(load(ramp_values + i)), load(x + i)));
}

// w = m F(s) of a tile; w may be s
template <class N, class A = Accumulator<N>>
void pointwise_weights(const QueryBlock<N>& block, const Keys& keys, const A* scores, const Workspace<A>& w,
                       A* weights) {
  const int64_t n = keys.count * block.width;
  block.p.weighting.template of<A>().function->values(scores, weights, n, block.parameters());
  if (keys.coverage == Coverage::some) apply_mask(w.ramp_values, n, weights, weights);
}

// Returns the dropout factors of a tile, null without dropout.
template <class N, class A = Accumulator<N>>
const A* dropout_of(const QueryBlock<N>& block, const Keys& keys, const Workspace<A>& w) {
  const Problem<A>& p = block.p;
  if (p.dropout.kept == 0) return nullptr;
  const int64_t key = keys.first + (keys.slots ? p.keys : 0);
  return dropout_factors(p, block.row_index(), block.width, key, keys.count, w.dropout_factors);
}

// Packs queries as columns, times the scale. Pairs stay bf16, so their products apply the scale.
template <class N, class A = Accumulator<N>>
void pack_queries(const QueryBlock<N>& block, A* query_columns) {
  pack_columns<N>(block.query_elements(block.p.query, block.p.head_size), block.count, block.p.head_size,
                  paired<N> ? A(1) : block.p.scale, block.width, query_columns);
}
template <class N>
Accumulator<N> scale_of_products(const QueryBlock<N>& block) {
  return paired<N> ? block.p.scale : Accumulator<N>(1);
}

template <class N, class A = Accumulator<N>>
void load_log_sums(const QueryBlock<N>& block, A* log_sums) {
  const A* const saved = block.p.log_sum + block.row_index();
  for (int64_t i = 0; i < block.width; ++i) log_sums[i] = i < block.count ? log_sum_or_infinity(saved[i]) : infinity<A>;
}

}  // namespace
}  // namespace orrery::detail::attention
