// Shared by all attention kernels: tiles, and engine/attention_formula/formula.h for single
// queries, keys and scores.
#pragma once

#include <limits>

#include "cuda/attention/problem.cuh"
#include "engine/math/approx_float.h"
#include "engine/math/scalar.h"

namespace orrery::cuda {

// ---- tiles

// Consecutive queries of one head of one sequence.
struct QueryTile {
  int sequence, head, first;
};
template <class P>
__device__ int64_t row_of(const P& p, const QueryTile& q) {  // row of query 0 in (batch, query_heads, queries)
  return int64_t{q.sequence * p.query_heads + q.head} * p.queries;
}
template <class P>
__device__ int kv_head(const P& p, const QueryTile& q) {
  return q.head / (p.query_heads / p.kv_heads);
}
// Returns a block's tile of `side` queries. Last tiles come first: they are longest if causal.
template <class P>
__device__ QueryTile query_tile(const P& p, unsigned block, int side) {
  const unsigned heads = static_cast<unsigned>(p.batch * p.query_heads);
  const int head = static_cast<int>(block % heads), tiles = (p.queries + side - 1) / side;
  return {head / p.query_heads, head % p.query_heads, (tiles - 1 - static_cast<int>(block / heads)) * side};
}

// Consecutive keys of the sequence, or persistent slots, below `end`; `first` may be negative.
struct KeyTile {
  bool slots;
  int first, end;
};

// The tiles of `side` keys that a tile of `queries` queries may attend to, then tiles of slots.
struct KeyTiles {
  int side, first, end, context, count, slots;

  template <class P>
  __device__ KeyTiles(const P& p, const QueryTile& q, int queries, int keys_of_tile)
      : side(keys_of_tile), end(length_of(p, q.sequence)), slots(p.slots) {
    const Interval keys = keys_of_queries(p, q.first, queries, end);
    first = keys.begin / side * side;
    context = keys.end > first ? (keys.end - first + side - 1) / side : 0;
    count = context + (slots + side - 1) / side;
  }
  __device__ KeyTile operator[](int n) const {
    return n < context ? KeyTile{false, first + n * side, end} : KeyTile{true, (n - context) * side, slots};
  }
};

// Returns the queries that may attend to `keys_of_tile` keys, from a multiple of `side` on.
template <class P>
__device__ Interval query_range(const P& p, const KeyTile& keys, int keys_of_tile, int side) {
  if (keys.slots) return {0, p.queries};
  const Interval queries = queries_of_keys(p, keys.first, keys_of_tile);
  return {queries.begin / side * side, queries.end};
}

// ---- operands of one head

template <class P, class B>  // B: A for writing, const A for reading
__device__ auto rows_of_queries(const P& p, TensorView<B> tokens, const QueryTile& q, int size) {
  return rows_from(p, tokens, int64_t{q.sequence} * p.queries, int64_t{q.head} * size);
}
template <class A, class P>
__device__ ReadRows<A> rows_of_keys(const P& p, TensorView<const A> context, TensorView<const A> slots,
                                    const QueryTile& q, const KeyTile& keys, int size) {
  const int64_t column = int64_t{kv_head(p, q)} * size;
  return keys.slots ? rows_from(p, slots, 0, column) : rows_from(p, context, int64_t{q.sequence} * p.keys, column);
}

// ---- the mask

template <class P>
__device__ bool attends_to(const P& p, const QueryTile& q, const KeyTile& keys, int i, int j) {
  if (i >= p.queries || j < 0 || j >= keys.end) return false;
  return keys.slots || is_visible(p, q.sequence, i, j);
}
// Returns r, `masked_ramp` or `outside_ramp`.
template <class A, class P>
__device__ A ramp_value(const P& p, const QueryTile& q, const KeyTile& keys, int i, int j) {
  if (!attends_to(p, q, keys, i, j)) return masked_ramp<A>;
  if (keys.slots || !p.span) return outside_ramp<A>;
  const int x = i + p.query_offset - j;
  return orrery::ramp_value(p.span[p.span_per_query ? row_of(p, q) + i : q.head], static_cast<A>(x < 0 ? -x : x),
                            p.ramp);
}

// ---- dropout

// Returns random words of query i for the four consecutive keys or slots that include `index`.
template <class P>
__device__ Values<uint32_t, 4> dropout_words(const P& p, const RandomKey& rng_key, const QueryTile& q, int i,
                                             int index) {
  return rng_key.bits(dropout_counter(p.dropout, row_of(p, q) + i, index));
}
__device__ inline uint32_t word_of(const Values<uint32_t, 4>& words, int index) {
  const int word = index % 4;
  return word == 0 ? words[0] : word == 1 ? words[1] : word == 2 ? words[2] : words[3];
}
// Returns d, which is 1 / (1 - dropout) or 0.
template <class A, class P>
__device__ A dropout_factor(const P& p, const RandomKey& rng_key, const QueryTile& q, const KeyTile& keys, int i,
                            int j) {
  const int index = keys.slots ? p.keys + j : j;
  return orrery::dropout_factor(p.dropout, word_of(dropout_words(p, rng_key, q, i, index), index));
}

// ---- scores, weights and their derivatives

struct Exponential {
  template <class A>
  __device__ A operator()(A x) const {
    return scalar::exp(x);
  }
};
struct Logarithm {
  template <class A>
  __device__ A operator()(A x) const {
    return scalar::log(x);
  }
};

// Returns s from t.
template <class A, class P>
__device__ A capped(const P& p, A t) {
  return p.soft_cap > 0 ? capped_score(scalar::tanh(t / p.soft_cap), p.soft_cap) : t;
}
// Returns ds/dt.
template <class A, class P>
__device__ A capped_derivative(const P& p, A s) {
  return cap_derivative(p.soft_cap > 0 ? s / p.soft_cap : A(0));
}

template <class P>
inline constexpr int parameters_of = decltype(P::weights)::parameters;
// Returns F, with its learned parameters of the head, if it has any; for softmax, an unused value.
template <class A, class P>
__device__ decltype(auto) function_of(const P& p, const QueryTile& q) {
  if constexpr (parameters_of<P> > 0)
    return decltype(P::weights)::Binding::of(p.weights.f, p.parameters + q.head * parameters_of<P>);
  else if constexpr (decltype(P::weights)::softmax)
    return (p.weights);
  else
    return (p.weights.f);
}
// Returns exp(s - L) for softmax, else F(s).
template <class A, class P, class F, class Exp = Exponential>
__device__ A unmasked_weight(const P&, const F& f, A s, A log_sum, const Exp& exp = {}) {
  if constexpr (decltype(P::weights)::softmax)
    return softmax_weight(s, log_sum, exp);
  else
    return f.value(s);
}
// Returns ds. `gradient`: g - c for softmax, else g.
template <class A, class P, class F>
__device__ A score_gradient(const P&, const F& f, A m, A s, A weight, A gradient) {
  if constexpr (decltype(P::weights)::softmax)
    return softmax_score_gradient(weight, gradient);
  else
    return m * f.derivative(s) * gradient;
}

}  // namespace orrery::cuda
