// The scores of a tile: s = cap tanh(t / cap), t = scale <q, k + p> + b. Element j width + i of a
// tile (keys x width) is s_ij. The scale enters in `pack_queries`; for bf16 pairs in the product.
#pragma once

#include "engine/attention/distance.h"

namespace orrery::detail::attention {
namespace {

// Replaces t by s; writes ds/dt to `cap_derivatives` if it is given.
template <class A>
void cap_scores(A cap, int64_t n, A* scores, A* cap_derivatives) {
  const A inverse = A(1) / cap;
  for (int64_t i = 0; i < n; i += lanes<A>) {
    const Vector<A> tanh = hyperbolic_tangent<A>(load(scores + i) * inverse);
    store(scores + i, capped_score(tanh, cap));
    if (cap_derivatives) store(cap_derivatives + i, cap_derivative(tanh));
  }
}

// Computes the scores of a tile and, unless all of it is visible, its ramp values. Masked scores
// become minus infinity for softmax (weight exactly 0), else 0; so do scores with r = 0 (weight 0)
// unless `with_far_end`. With a soft cap, `cap_derivatives` gets ds/dt, 0 without weight.
template <class N, class A = Accumulator<N>>
void compute_scores(const QueryBlock<N>& block, const Keys& keys, const Workspace<A>& w, bool with_far_end = false,
                    A* cap_derivatives = nullptr) {
  const A cap = block.p.soft_cap;
  const int64_t n = keys.count * block.width, size = block.p.head_size;
  transposed_product(block, keys, left_operand_rows<N>(key_rows(block, keys), keys.count, size, w.key_rows), size,
                     w.query_columns, scale_of_products(block), w.scores, w);
  add_distance_terms(block, keys, w.scores, w);
  if (cap > 0) cap_scores(cap, n, w.scores, cap_derivatives);
  if (keys.coverage == Coverage::all) return;
  const Vector<A> nothing = splat(block.softmax() ? -infinity<A> : A(0));
  A* const capped = cap > 0 ? cap_derivatives : nullptr;
  for_each_score<A>(
      block.mask, block.spans, block.p.ramp, block.first, block.count, block.width, keys.first,
      keys.count, [&](int64_t index, Vector<A> r) __attribute__((always_inline)) {
        const Mask<A> masked = is_masked(r, with_far_end);
        store(w.ramp_values + index, r);
        store(w.scores + index, select<A>(masked, nothing, load(w.scores + index)));
        if (capped) store(capped + index, select<A>(is_masked(r, false), Vector<A>{}, load(capped + index)));
      });
}

}  // namespace
}  // namespace orrery::detail::attention
