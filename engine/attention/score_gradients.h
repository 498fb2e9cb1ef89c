// Gradients of the scores from the gradients of the output, element by element of a tile: g, ds, dm
// and dt of engine/attention_formula/problem.h.
#pragma once

#include "engine/attention/scores.h"

namespace orrery::detail::attention {
namespace {

// A block of queries in backward, with the values that all its tiles share.
template <class N>
struct BackwardBlock : QueryBlock<N> {
  using A = Accumulator<N>;
  RightOperand<N> queries = {}, output_gradients = {};
  bool statistics = false;                                   // dS or dH is given
  A *log_sums = nullptr, *inner = nullptr;                   // softmax: L_i and c_i
  A* sum_gradients = nullptr;                                // dS_i
  A *entropy_factors = nullptr, *entropy_offsets = nullptr;  // an EntropyTerm for each query
  A* span_gradients = nullptr;                               // sums of dm over the tiles so far; null if not needed
};

// Loads dS_i and the entropy's term of each query.
template <class N, class A = Accumulator<N>>
void load_statistics(const BackwardBlock<N>& block) {
  const StatisticsGradients<A>& given = block.p.statistics_gradients;
  for (int64_t i = 0; i < block.width; ++i) {
    const int64_t index = block.row_index() + i;
    const bool exists = i < block.count;
    block.sum_gradients[i] = exists && given.sum_gradient ? given.sum_gradient[index] : A(0);
    const EntropyTerm<A> term = exists ? entropy_term(given, index, logarithm_of_one<A>) : EntropyTerm<A>{};
    block.entropy_factors[i] = term.factor, block.entropy_offsets[i] = term.offset;
  }
}

template <class N, class A = Accumulator<N>>
Vector<A> entropy_term(const BackwardBlock<N>& block, int64_t i, Vector<A> weight) {
  const EntropyTerm<Vector<A>> term{load(block.entropy_factors + i), load(block.entropy_offsets + i)};
  return term.gradient(weight, logarithm_of);
}

// exp(s - L) on the ramp, where s may exceed L
constexpr auto exponential_on_ramp = []<class V>(V x) __attribute__((always_inline)) {
  using A = Lane<V>;
  return select<A>(x > -Format<A>::exp_lowest, splat(infinity<A>), exponential<A>(x));
};

// Replaces scores by weights, and the gradients g of the weights by those of the scores, 0 where
// masked. `ramp_values` is null if m = 1.
template <class N, class A = Accumulator<N>>
void softmax_score_gradients(const BackwardBlock<N>& block, int64_t keys, const A* ramp_values, A* scores,
                             A* gradients) {
  for (int64_t i = 0; i < block.width; i += lanes<A>) {
    const Vector<A> log_sum = load(block.log_sums + i), inner = load(block.inner + i);
    Vector<A> span_gradients{};
    for (int64_t j = 0; j < keys; ++j) {
      A *const s = scores + j * block.width + i, *const g = gradients + j * block.width + i;
      const Vector<A> unmasked = ramp_values ? softmax_weight(load(s), log_sum, exponential_on_ramp)
                                             : softmax_weight(load(s), log_sum, exponential_of);
      const Vector<A> r = ramp_values ? load(ramp_values + j * block.width + i) : Vector<A>{};
      const Vector<A> w = ramp_values ? times_mask_weight(mask_weight(r), unmasked) : unmasked;
      const Vector<A> centred = (block.statistics ? load(g) + entropy_term(block, i, w) : load(g)) - inner;
      if (ramp_values) span_gradients += span_gradient(r, unmasked * centred);
      store(g, softmax_score_gradient(w, centred));
      store(s, w);
    }
    if (block.span_gradients) store(block.span_gradients + i, load(block.span_gradients + i) + span_gradients);
  }
}

// Adds the terms of dS and dH to g, for pointwise weights.
template <class N, class A = Accumulator<N>>
void add_statistics_gradients(const BackwardBlock<N>& block, int64_t keys, const A* weights, A* gradients) {
  for (int64_t i = 0; i < block.width; i += lanes<A>)
    for (int64_t j = 0; j < keys; ++j) {
      A* const g = gradients + j * block.width + i;
      const Vector<A> w = load(weights + j * block.width + i);
      store(g, load(g) + load(block.sum_gradients + i) + entropy_term(block, i, w));
    }
}

// Adds dm of a tile to the sums of the block, for pointwise weights; `values`: F(s).
template <class N, class A = Accumulator<N>>
void add_span_gradients(const BackwardBlock<N>& block, int64_t keys, const A* ramp_values, const A* values,
                        const A* gradients) {
  for (int64_t i = 0; i < block.width; i += lanes<A>) {
    Vector<A> total{};
    for (int64_t j = 0; j < keys; ++j) {
      const int64_t index = j * block.width + i;
      total += span_gradient(load(ramp_values + index), load(values + index) * load(gradients + index));
    }
    store(block.span_gradients + i, load(block.span_gradients + i) + total);
  }
}

template <class N, class A = Accumulator<N>>
void pointwise_score_gradients(const BackwardBlock<N>& block, const Keys& keys, const Workspace<A>& w) {
  const int64_t n = keys.count * block.width;
  if (block.statistics) {
    pointwise_weights(block, keys, w.scores, w, w.scratch);
    add_statistics_gradients(block, keys.count, w.scratch, w.score_gradients);
  }
  const TileFunction<A>& function = *block.p.weighting.template of<A>().function;
  if (w.sums.parameters) {
    const bool all = keys.coverage == Coverage::all;
    if (!all) apply_mask(w.ramp_values, n, w.score_gradients, w.scratch);
    function.add_parameter_gradients(w.scores, all ? w.score_gradients : w.scratch, n, block.parameters(),
                                     w.sums.parameters + block.head * block.p.parameter_count);
  }
  const bool with_span = block.span_gradients && may_be_on_ramp(block, keys);  // g is then used once more
  A* const ds = with_span ? w.scratch : w.score_gradients;
  function.backward(w.scores, w.score_gradients, w.scores, ds, n, block.parameters());
  if (with_span) add_span_gradients(block, keys.count, w.ramp_values, w.scores, w.score_gradients);
  if (keys.coverage == Coverage::all) return;
  apply_mask(w.ramp_values, n, w.scores, w.scores);
  apply_mask(w.ramp_values, n, ds, w.score_gradients);
}

// Computes weights with dropout, and dt, of a tile (keys x width). Returns false if all are 0.
template <class N, class A = Accumulator<N>>
bool differentiate(const BackwardBlock<N>& block, const Keys& keys, const Workspace<A>& w) {
  const int64_t n = keys.count * block.width;
  compute_scores(block, keys, w, true, w.cap_derivatives);
  if (has_no_positive_score(block, keys, w.scores)) return false;
  const int64_t size = block.p.value_size;
  transposed_product(block, keys, left_operand_rows<N>(value_rows(block, keys), keys.count, size, w.value_rows), size,
                     w.gradient_columns, A(1), w.score_gradients, w);
  const A* const factors = dropout_of(block, keys, w);
  if (factors) multiply(w.score_gradients, factors, n);
  if (block.softmax())
    softmax_score_gradients(block, keys.count, may_be_on_ramp(block, keys) ? w.ramp_values : nullptr, w.scores,
                            w.score_gradients);
  else
    pointwise_score_gradients(block, keys, w);
  if (block.p.soft_cap > 0) multiply(w.score_gradients, w.cap_derivatives, n);
  if (factors) multiply(w.scores, factors, n);
  return true;
}

}  // namespace
}  // namespace orrery::detail::attention
