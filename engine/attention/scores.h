// The scores of a tile: s = cap tanh(t / cap), t = scale <q, k + p> + b.
#pragma once

#include "engine/attention/distance.h"

namespace orrery::detail::attend {
namespace {

// s of t, in place; with `slopes` also ds/dt = 1 - (s / cap)^2
template <class A>
void cap_scores(A cap, int64_t n, A* scores, A* slopes) {
  const A inverse = A(1) / cap;
  for (int64_t i = 0; i < n; i += lanes<A>) {
    const Vector<A> share = hyperbolic_tangent<A>(load(scores + i) * inverse);
    store(scores + i, share * cap);
    if (slopes) store(slopes + i, A(1) - share * share);
  }
}

// Scores of a tile, and its shares unless all of it is seen.  Hidden scores become minus infinity for softmax, whose
// weight is then exactly 0, and 0 otherwise.  `slopes`, if wanted and there is a soft cap: 0 where hidden.
template <class A>
void compute_scores(const QueryBlock<A>& block, const Keys& keys, const Workspace<A>& w, A* slopes = nullptr) {
  const AttendOptions& options = block.p.options;
  const int64_t n = keys.count * block.width;
  transposed_product(block, keys, key_rows(block, keys), block.p.sizes.head_size, w.query_columns, w.scores, w);
  add_distance_terms(block, keys, w.scores, w);
  if (options.soft_cap > 0) cap_scores(static_cast<A>(options.soft_cap), n, w.scores, slopes);
  if (keys.cover == Cover::all) return;
  const Vector<A> hidden = splat(block.softmax() ? -infinity<A> : A(0));
  A* const capped = options.soft_cap > 0 ? slopes : nullptr;
  each_share(
      block.see, block.spans, options.ramp, block.first, block.count, block.width, keys.first,
      keys.count, [&](int64_t at, Vector<A> m) __attribute__((always_inline)) {
        const Mask<A> unseen = m == A(0);
        store(w.shares + at, m);
        store(w.scores + at, select<A>(unseen, hidden, load(w.scores + at)));
        if (capped) store(capped + at, select<A>(unseen, Vector<A>{}, load(capped + at)));
      });
}

}  // namespace
}  // namespace orrery::detail::attend
