// From the gradients of what was read to those of the scores, element by element of a tile:
//
//   g_ij  = d_ij <do_i, v_j> + dS_i - dH_i (ln(w_ij / P_i) + H_i) / P_i     the last term only where w > 0
//   ds_ij = w_ij (g_ij - c_i),  c_i = <do_i, o_i>                           softmax
//   ds_ij = m_ij F'(s_ij) g_ij                                              pointwise
//   dm_ij = exp(s_ij - L_i) (g_ij - c_i)  or  F(s_ij) g_ij,  dz_i = sum_j dm_ij / R where 0 < m_ij < 1
//   dt_ij = ds_ij (1 - (s_ij / cap)^2)
//
// The weights of softmax add up to 1 whatever the scores, so dS is left out there, from g and c alike.
#pragma once

#include "engine/attention/scores.h"

namespace orrery::detail::attend {
namespace {

// A block of queries in backward: what is computed once for all its tiles.
template <class A>
struct BackwardBlock : QueryBlock<A> {
  Matrix<const A> queries = {}, output_gradients = {};
  bool finite_queries = true, finite_output_gradients = true;
  bool statistics = false;                   // dS or dH is given
  A *log_sums = nullptr, *inner = nullptr;   // softmax: L_i and c_i
  A* sum_gradients = nullptr;                // dS_i
  A *factors = nullptr, *offsets = nullptr;  // the entropy's term is factor (ln w + offset): -dH / P and H - ln P
  A* span_gradients = nullptr;               // sums of dm over the tiles so far; null if nobody wants them
};

template <class A>
void load_statistics(const BackwardBlock<A>& block) {
  const StatisticsGradients<A>& given = block.p.statistics_gradients;
  for (int64_t i = 0; i < block.width; ++i) {
    const int64_t at = block.place() + i;
    const bool exists = i < block.count;
    block.sum_gradients[i] = exists && given.sum_gradient ? given.sum_gradient[at] : A(0);
    const bool positive = exists && given.entropy_gradient && given.positive_sum[at] > 0;
    block.factors[i] = positive ? -given.entropy_gradient[at] / given.positive_sum[at] : A(0);
    block.offsets[i] = positive ? given.entropy[at] - logarithm<A>(splat(given.positive_sum[at]))[0] : A(0);
  }
}

template <class A>
Vector<A> entropy_term(const BackwardBlock<A>& block, int64_t i, Vector<A> weight) {
  const Vector<A> term = load(block.factors + i) * (logarithm<A>(weight) + load(block.offsets + i));
  return select<A>(weight > A(0), term, Vector<A>{});
}

// dm where it reaches the span
template <class A>
Vector<A> on_open_ramp(Vector<A> share, Vector<A> gradient) {
  return select<A>((share > A(0)) & (share < A(1)), gradient, Vector<A>{});
}

// Scores become weights, the gradients g of the weights those of the scores, 0 where hidden.
template <class A>
void softmax_score_gradients(const BackwardBlock<A>& block, int64_t keys, const A* shares, A* scores, A* gradients) {
  for (int64_t i = 0; i < block.width; i += lanes<A>) {
    const Vector<A> log_sum = load(block.log_sums + i), inner = load(block.inner + i);
    Vector<A> span_gradient{};
    for (int64_t j = 0; j < keys; ++j) {
      A *const s = scores + j * block.width + i, *const g = gradients + j * block.width + i;
      const Mask<A> hidden = load(s) == -infinity<A>;
      const Vector<A> unmasked = select<A>(hidden, Vector<A>{}, exponential<A>(load(s) - log_sum));
      const Vector<A> share = shares ? load(shares + j * block.width + i) : splat(A(1)), w = share * unmasked;
      const Vector<A> centred = (block.statistics ? load(g) + entropy_term(block, i, w) : load(g)) - inner;
      if (shares) span_gradient += on_open_ramp<A>(share, unmasked * centred);
      store(g, select<A>(hidden, Vector<A>{}, w * centred));
      store(s, w);
    }
    if (block.span_gradients) store(block.span_gradients + i, load(block.span_gradients + i) + span_gradient);
  }
}

// g of pointwise weights
template <class A>
void add_statistics_gradients(const BackwardBlock<A>& block, int64_t keys, const A* weights, A* gradients) {
  for (int64_t i = 0; i < block.width; i += lanes<A>)
    for (int64_t j = 0; j < keys; ++j) {
      A* const g = gradients + j * block.width + i;
      const Vector<A> w = load(weights + j * block.width + i);
      store(g, load(g) + load(block.sum_gradients + i) + entropy_term(block, i, w));
    }
}

template <class A>
void add_span_gradients(const BackwardBlock<A>& block, int64_t keys, const A* shares, const A* values,
                        const A* gradients) {
  for (int64_t i = 0; i < block.width; i += lanes<A>) {
    Vector<A> total{};
    for (int64_t j = 0; j < keys; ++j) {
      const int64_t at = j * block.width + i;
      total += on_open_ramp<A>(load(shares + at), load(values + at) * load(gradients + at));
    }
    store(block.span_gradients + i, load(block.span_gradients + i) + total);
  }
}

template <class A>
void pointwise_score_gradients(const BackwardBlock<A>& block, const Keys& keys, const Workspace<A>& w) {
  const Weighting<A>& weighting = block.p.weighting;
  const int64_t n = keys.count * block.width;
  if (block.statistics) {
    pointwise_weights(block, keys, w.scores, w, w.spare);
    add_statistics_gradients(block, keys.count, w.spare, w.score_gradients);
  }
  const bool with_span = block.span_gradients && on_ramp(block, keys);  // then g is needed once more
  A* const ds = with_span ? w.spare : w.score_gradients;
  weighting.backward(weighting.context, w.scores, w.score_gradients, w.scores, ds, n);
  if (with_span) add_span_gradients(block, keys.count, w.shares, w.scores, w.score_gradients);
  if (keys.cover == Cover::all) return;
  apply_shares(w.shares, n, w.scores, w.scores);
  apply_shares(w.shares, n, ds, w.score_gradients);
}

// Weights with dropout, and dt, of one tile, both (keys x width).  False: all of them are zero.
template <class A>
bool differentiate(const BackwardBlock<A>& block, const Keys& keys, const Workspace<A>& w) {
  const int64_t n = keys.count * block.width;
  compute_scores(block, keys, w, w.slopes);
  if (vanishes(block, keys, w.scores)) return false;
  transposed_product(block, keys, value_rows(block, keys), block.p.sizes.value_size, w.gradient_columns,
                     w.score_gradients, w);
  const A* const kept = dropout_of(block, keys, w);
  if (kept) multiply(w.score_gradients, kept, n);
  if (block.softmax())
    softmax_score_gradients(block, keys.count, on_ramp(block, keys) ? w.shares : nullptr, w.scores, w.score_gradients);
  else
    pointwise_score_gradients(block, keys, w);
  if (block.p.options.soft_cap > 0) multiply(w.score_gradients, w.slopes, n);
  if (kept) multiply(w.scores, kept, n);
  return true;
}

}  // namespace
}  // namespace orrery::detail::attend
