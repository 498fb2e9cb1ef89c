// The formulas of engine/base/attention.h for single queries, keys and scores, which all kernels of attention share:
// where they stand, who sees whom, and what a score becomes.
#pragma once

#include <cstdint>
#include <limits>

#include "cuda/attention/problem.cuh"
#include "engine/base/scalar.h"

namespace orrery::cuda {

__device__ inline int least(int a, int b) { return a < b ? a : b; }

// ---- tiles

// Neighbouring queries of one head of one sequence.
struct QueryTile {
  int sequence, head, first;
};
template <class P>
__device__ int64_t row_of(const P& p, const QueryTile& q) {  // of query 0 in (batch, query_heads, queries)
  return (int64_t{q.sequence} * p.query_heads + q.head) * p.queries;
}
template <class P>
__device__ int key_head(const P& p, const QueryTile& q) {
  return q.head / (p.query_heads / p.key_heads);
}
// The tile of `side` queries that belongs to a block.  Last tiles come first: under a causal mask they are the longest.
template <class P>
__device__ QueryTile query_tile(const P& p, unsigned block, int side) {
  const unsigned heads = static_cast<unsigned>(p.batch * p.query_heads);
  const int head = static_cast<int>(block % heads), tiles = (p.queries + side - 1) / side;
  return {head / p.query_heads, head % p.query_heads, (tiles - 1 - static_cast<int>(block / heads)) * side};
}

// Neighbouring keys of the sequence, or persistent slots.  From `end` on there are none; `first` may be negative.
struct KeyTile {
  bool slots;
  int first, end;
};
template <class P>
__device__ int length_of(const P& p, int sequence) {
  return p.key_lengths ? p.key_lengths[sequence] : p.keys;
}

// The tiles of `side` keys that a tile of `queries` queries may see, then those of slots, numbered from 0.
struct KeyTiles {
  int side, first, end, context, count, slots;

  template <class P>
  __device__ KeyTiles(const P& p, const QueryTile& q, int queries, int keys_of_tile) : side(keys_of_tile) {
    const int place = q.first + p.query_offset, last = place + queries - 1;
    first = p.window > 0 && place - p.window >= 0 ? (place - p.window + 1) / side * side : 0;
    end = length_of(p, q.sequence);
    if (p.window > 0 && last + p.window < end) end = last + p.window;
    if (p.causal && last + 1 < end) end = last + 1;
    context = end > first ? (end - first + side - 1) / side : 0;
    slots = p.slots;
    count = context + (slots + side - 1) / side;
    end = length_of(p, q.sequence);
  }
  __device__ KeyTile operator[](int n) const {
    return n < context ? KeyTile{false, first + n * side, end} : KeyTile{true, (n - context) * side, slots};
  }
};

// The queries that may see `keys_of_tile` keys, from a multiple of `side` on.
struct QueryRange {
  int begin, end;

  template <class P>
  __device__ QueryRange(const P& p, const KeyTile& keys, int keys_of_tile, int side) : begin(0), end(p.queries) {
    if (keys.slots) return;
    const int nearest = keys.first - p.query_offset;  // the query whose own key is the first one
    if (p.causal) begin = nearest;
    if (p.window > 0 && nearest - p.window >= begin) begin = nearest - p.window + 1;
    if (p.window > 0 && nearest + keys_of_tile - 1 + p.window < end) end = nearest + keys_of_tile - 1 + p.window;
    begin = begin < 0 ? 0 : begin / side * side;
  }
};

// ---- operands of one head

template <class A, class P>
__device__ ReadRows<A> rows_of_queries(const P& p, const ReadRows<A>& tokens, const QueryTile& q, int size) {
  return tokens.from(int64_t{q.sequence} * p.queries, int64_t{q.head} * size);
}
template <class A, class P>
__device__ ReadRows<A> rows_of_keys(const P& p, const ReadRows<A>& context, const ReadRows<A>& slots,
                                    const QueryTile& q, const KeyTile& keys, int size) {
  const int64_t column = int64_t{key_head(p, q)} * size;
  return keys.slots ? slots.from(0, column) : context.from(int64_t{q.sequence} * p.keys, column);
}

// ---- shares: m, 0 for what a query does not see

template <class P>
__device__ bool sees(const P& p, const QueryTile& q, const KeyTile& keys, int i, int j) {
  if (i >= p.queries || j < 0 || j >= keys.end) return false;
  if (keys.slots) return true;
  const int x = i + p.query_offset - j, distance = x < 0 ? -x : x;
  if ((p.causal && x < 0) || (!p.attend_to_self && x == 0) || (p.window > 0 && distance >= p.window)) return false;
  return !p.query_document_ids || p.query_document_ids[int64_t{q.sequence} * p.queries + i] ==
                                      p.key_document_ids[int64_t{q.sequence} * p.keys + j];
}
template <class A, class P>
__device__ A share_of(const P& p, const QueryTile& q, const KeyTile& keys, int i, int j) {
  if (!sees(p, q, keys, i, j)) return 0;
  if (keys.slots || !p.span) return 1;
  const int x = i + p.query_offset - j, distance = x < 0 ? -x : x;
  const A m = (p.span[p.span_per_query ? row_of(p, q) + i : q.head] - static_cast<A>(distance)) / p.ramp + A(1);
  return m <= 0 ? A(0) : m >= 1 ? A(1) : m;
}

// ---- dropout

// Random words of query i for key or slot `number` and its neighbours: one for each of four.
template <class P>
__device__ Values<uint32_t, 4> dropout_words(const P& p, const RandomKey& key, const QueryTile& q, int i, int number) {
  return key.bits(static_cast<uint64_t>((row_of(p, q) + i) * p.counters + number / 4));
}
__device__ inline uint32_t word_of(const Values<uint32_t, 4>& words, int number) {
  const int word = number % 4;
  return word == 0 ? words[0] : word == 1 ? words[1] : word == 2 ? words[2] : words[3];
}
// 1 / (1 - dropout) or 0
template <class A, class P>
__device__ A dropout_factor(const P& p, const RandomKey& key, const QueryTile& q, const KeyTile& keys, int i, int j) {
  const int number = keys.slots ? p.keys + j : j;
  return word_of(dropout_words(p, key, q, i, number), number) >= p.least ? p.kept : A(0);
}

// ---- scores, weights and their derivatives

// s
template <class A, class P>
__device__ A capped(const P& p, A t) {
  return p.soft_cap > 0 ? p.soft_cap * scalar::tanh(t / p.soft_cap) : t;
}

struct Exponential {
  template <class A>
  __device__ A operator()(A x) const {
    return scalar::exp(x);
  }
};

// exp(s - L) or F(s).  A score of minus infinity has no weight, even where all are.
template <class A, class P, class Exp = Exponential>
__device__ A unmasked_weight(const P& p, A s, A log_sum, const Exp& exp = {}) {
  if constexpr (decltype(P::weights)::softmax)
    return s == -std::numeric_limits<A>::infinity() ? A(0) : exp(s - log_sum);
  else
    return p.weights.f.value(s);
}

// ds, for a share that is not 0.  `gradient` is g, less c for softmax.
template <class A, class P>
__device__ A score_gradient(const P& p, A share, A s, A weight, A gradient) {
  if constexpr (decltype(P::weights)::softmax)
    return s == -std::numeric_limits<A>::infinity() ? A(0) : weight * gradient;
  else
    return share * p.weights.f.derivative(s) * gradient;
}
// dt / ds
template <class A, class P>
__device__ A cap_slope(const P& p, A s) {
  const A capped = p.soft_cap > 0 ? s / p.soft_cap : A(0);
  return 1 - capped * capped;
}

// The running state of softmax for a row: the largest score of keys with m > 0 so far, and a thread's own part of the
// sum of m exp(s - largest).
template <class A, class Exp = Exponential>
struct SoftmaxRow {
  A largest = -std::numeric_limits<A>::infinity(), sum = 0, base = 0;

  // Takes the largest score of the row so far; returns what everything added up before shrinks by.
  __device__ A raise(A top) {
    base = top == -std::numeric_limits<A>::infinity() ? A(0) : top;  // nothing seen yet
    const A shrink = Exp{}(largest - base);
    largest = top, sum *= shrink;
    return shrink;
  }
  __device__ A weigh(A share, A s) {
    const A w = share == 0 ? A(0) : share * Exp{}(s - base);
    sum += w;
    return w;
  }
  // Of the whole sum
  __device__ A log_sum(A total) const {
    return total == 0 ? -std::numeric_limits<A>::infinity() : largest + scalar::log(total);
  }
};

}  // namespace orrery::cuda
