// A problem of attention as the kernels see it: the sizes, options and inputs of engine/base/attention.h, as numbers
// that a card is quick with, and the weighting, which is what the kernels are compiled for.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "cuda/attention/attention.h"
#include "cuda/runtime/launch.cuh"

namespace orrery::cuda {

// ---- the problem

// Tokens of one head.  Kernels for float read and write bf16 too, told at run time: a weighting is compiled for two
// types and not for three.
template <class A>
struct ReadRows {
  const void* data = nullptr;
  int64_t stride = 0, first = 0;
  bool is_bf16 = false;

  __device__ ReadRows from(int64_t token, int64_t column) const {
    return {data, stride, first + token * stride + column, is_bf16};
  }
  __device__ A at(int64_t row, int column) const {
    const int64_t i = first + row * stride + column;
    if constexpr (sizeof(A) == 4)
      if (is_bf16) return static_cast<A>(static_cast<const bf16*>(data)[i]);
    return static_cast<const A*>(data)[i];
  }
};
template <class A>
struct WriteRows {
  void* data = nullptr;
  int64_t stride = 0, first = 0;
  bool is_bf16 = false;

  __device__ WriteRows from(int64_t token, int64_t column) const {
    return {data, stride, first + token * stride + column, is_bf16};
  }
  __device__ void set(int64_t row, int column, A x) const {
    const int64_t i = first + row * stride + column;
    if constexpr (sizeof(A) == 4)
      if (is_bf16) {
        static_cast<bf16*>(data)[i] = bf16(x);
        return;
      }
    static_cast<A*>(data)[i] = x;
  }
};

template <class A, class Weights>
struct AttendProblem {
  int batch, queries, keys, query_heads, key_heads, head_size, value_size, slots, distances;
  bool causal, attend_to_self, span_per_query;
  int query_offset, window;
  const int32_t *key_lengths, *query_document_ids, *key_document_ids;
  A scale, soft_cap, ramp;
  LateKey random_key;
  int64_t counters;  // of random words of a query
  uint32_t least;    // words from here on keep their weight
  A kept;            // the factor of weights that are kept; 0: no dropout
  Weights weights;
  ReadRows<A> query, key, value, slot_key, slot_value, relative_embedding;
  const A *relative_bias, *span;
  // Statistics and backward
  const A* log_sum;
  const A* inner;  // c of engine/attention/attention.h
  ReadRows<A> output_gradient;
  StatisticsGradients<A> statistics;
};

// ---- the problem from what the caller gives

template <class T>
ReadRows<Arithmetic<T>> read_rows(Tokens<const T> tokens) {
  return {tokens.data, tokens.stride, 0, std::is_same_v<T, bf16>};
}
template <class T>
WriteRows<Arithmetic<T>> write_rows(Tokens<T> tokens) {
  return {tokens.data, tokens.stride, 0, std::is_same_v<T, bf16>};
}

template <class T, class Weights>
AttendProblem<Arithmetic<T>, Weights> attend_problem(const AttendSizes& s, const AttendOptions& o,
                                                     const Weights& weights, const AttendInputs<T>& inputs) {
  using A = Arithmetic<T>;
  constexpr int64_t far = 1 << 30;
  const auto number = [](int64_t n) { return static_cast<int>(n); };  // all are below 2^29
  AttendProblem<A, Weights> p{};
  p.batch = number(s.batch), p.queries = number(s.queries), p.keys = number(s.keys);
  p.query_heads = number(s.query_heads), p.key_heads = number(s.key_heads);
  p.head_size = number(s.head_size), p.value_size = number(s.value_size);
  p.slots = number(s.slots), p.distances = number(s.distances);
  p.causal = o.causal, p.attend_to_self = o.attend_to_self, p.span_per_query = o.span_per_query;
  p.query_offset = number(o.query_offset), p.window = number(std::min(o.window, far));
  p.key_lengths = o.key_lengths, p.query_document_ids = o.query_document_ids, p.key_document_ids = o.key_document_ids;
  p.scale = static_cast<A>(o.scale), p.soft_cap = static_cast<A>(o.soft_cap), p.ramp = static_cast<A>(o.ramp);
  p.random_key = o.random_key, p.counters = (s.keys + s.slots + 3) / 4;
  p.least = static_cast<uint32_t>(std::min(std::ceil(o.dropout * 0x1p32), 0x1p32 - 1));
  p.kept = o.dropout > 0 ? static_cast<A>(1 / (1 - o.dropout)) : A(0);
  p.weights = weights;
  p.query = read_rows(inputs.query), p.key = read_rows(inputs.key), p.value = read_rows(inputs.value);
  p.slot_key = read_rows(inputs.slot_key), p.slot_value = read_rows(inputs.slot_value);
  p.relative_embedding = read_rows(inputs.relative_embedding);
  p.relative_bias = inputs.relative_bias, p.span = inputs.span;
  return p;
}

}  // namespace orrery::cuda
