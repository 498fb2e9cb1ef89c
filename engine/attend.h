// Values read by weighted scores, forward and backward, tile by tile: no (queries x keys) array is ever stored.
//
//   s_ij = scale <q_i, k_j>                                         for the keys j that query i sees
//   w_ij = exp(s_ij - L_i),  L_i = ln sum_j exp(s_ij)               softmax
//   w_ij = F(s_ij)                                                  pointwise, F any function
//   o_i  = sum_j m_ij w_ij v_j                                      m = 0 or 1 / (1 - dropout); 1 without dropout
//
// Backward, given do_i, recomputes s and w from q, k and L:
//
//   dv_j = sum_i m_ij w_ij do_i              g_ij = m_ij <do_i, v_j>
//   ds_ij = w_ij (g_ij - <do_i, o_i>)        softmax, because sum_j w_ij g_ij = <do_i, o_i>
//   ds_ij = F'(s_ij) g_ij                    pointwise
//   dq_i = scale sum_j ds_ij k_j             dk_j = scale sum_i ds_ij q_i
//
// Whatever is linear stays outside: a factor of the length or of the head scales o.  A mask selects zero: what a query
// does not see has no influence on its output or gradients, be it NaN; a query that sees nothing gives 0 everywhere.
// Products with a weight of exactly zero may be left out.
//
// Memory: forward keeps L, one number per query and head, for softmax, and nothing for pointwise.  With bf16, or a head
// size that is no multiple of 16, both passes work on converted copies of their operands.
// Source of the scheme: Dao et al. 2022, arXiv:2205.14135; Rabe and Staats 2021, arXiv:2112.05682.
//
// These functions run on the CPU.  The same inputs give the same bits for any number of threads.
#pragma once

#include <cstdint>

#include "engine/dtype.h"
#include "engine/random.h"

namespace orrery {

struct AttendSizes {
  int64_t batch, queries, keys;
  int64_t query_heads, key_heads;  // query head h reads key head h / (query_heads / key_heads)
  int64_t head_size, value_size;
};

struct AttendOptions {
  double scale = 1;
  bool causal = false;                       // query i sees key j only if j <= i + query_offset
  int64_t query_offset = 0;                  // place of query 0 among the keys; -1 hides a token from itself
  int64_t window = 0;                        // if not 0: query i sees key j only if |i + query_offset - j| < window
  const int32_t* key_lengths = nullptr;      // (batch): keys beyond this length are seen by nobody
  const int32_t* query_documents = nullptr;  // (batch, queries) and (batch, keys), both or none:
  const int32_t* key_documents = nullptr;    //   a query sees the keys of its own document
  // Share of the weights that is set to zero.  Row r of (batch, query_heads, queries) keeps its weight at key j if word
  // j % 4 of random_key.bits(r * ceil(keys / 4) + j / 4) is at least dropout 2^32.
  double dropout = 0;
  RandomKey random_key = {};
};

// How a score becomes a weight.  Without functions: softmax.  The functions are called once per tile, over n contiguous
// elements; w may be s and ds may be g.  A is float or double.
template <class A>
struct Weighting {
  void (*values)(const void* context, const A* s, A* w, int64_t n) = nullptr;                       // w = F(s)
  void (*pullback)(const void* context, const A* s, const A* g, A* w, A* ds, int64_t n) = nullptr;  // ds = F'(s) g
  const void* context = nullptr;
  bool zero_below_zero = false;  // F(s) = F'(s) = 0 for s <= 0: tiles without a positive score are skipped
};

// One tensor (batch, tokens, heads, size): a token's elements are dense, tokens lie `stride` elements apart.
template <class T>
struct Tokens {
  T* data = nullptr;
  int64_t stride = 0;
};
template <class T>
struct AttendInputs {
  Tokens<const T> query = {}, key = {}, value = {};
};
template <class T>
struct AttendGradients {  // overwritten, not added to; one without data is not computed
  Tokens<T> query = {}, key = {}, value = {};
};

// Numbers about the weights of every query, (batch, query_heads, queries) each; those without a pointer are not
// written. Dropout plays no part in them.  All are 0 for a query that sees nothing.
template <class A>
struct RowStatistics {
  A* sum = nullptr;         // of the weights
  A* entropy = nullptr;     // -sum p ln p in nats, p = max(w, 0) / (their sum)
  A* zero_share = nullptr;  // share of exact zeros among the keys that are seen
  A* maximum = nullptr;     // largest weight
};

// T is float, double or bf16.  Errors: sizes, strides and options that make no sense, by name and value.
//
// Writes output (batch, queries, query_heads, value_size) and, for softmax, log_sum (batch, query_heads, queries),
// which is minus infinity for a query that sees nothing.  For pointwise weights log_sum is not touched.
template <class T>
void attend_forward(const AttendSizes& sizes, const AttendOptions& options, const Weighting<Arithmetic<T>>& weighting,
                    const AttendInputs<T>& inputs, Tokens<T> output, Arithmetic<T>* log_sum);

// output and log_sum are what forward wrote; pointwise weights need neither.
template <class T>
void attend_backward(const AttendSizes& sizes, const AttendOptions& options, const Weighting<Arithmetic<T>>& weighting,
                     const AttendInputs<T>& inputs, Tokens<const T> output, const Arithmetic<T>* log_sum,
                     Tokens<const T> output_gradient, const AttendGradients<T>& gradients);

// log_sum is what forward wrote, for softmax.
template <class T>
void attend_statistics(const AttendSizes& sizes, const AttendOptions& options,
                       const Weighting<Arithmetic<T>>& weighting, const AttendInputs<T>& inputs,
                       const Arithmetic<T>* log_sum, const RowStatistics<Arithmetic<T>>& statistics);

// "avx512" or "avx2": chosen once by what the processor has.  Tests set it; an unknown or missing one is an Error.
const char* attend_instruction_set();
void use_attend_instruction_set(const char* name);

}  // namespace orrery
