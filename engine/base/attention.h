// Values read by weighted scores, forward and backward, tile by tile: no (queries x keys) array is ever stored.
//
//   x_ij = i + query_offset - j                                     the distance from query i back to key j
//   t_ij = scale <q_i, k_j + p_|x|> + b_h|x|                        p, b: terms of the distance; 0 without them
//   s_ij = cap tanh(t_ij / cap)                                     with a soft cap; s = t without
//   m_ij = clip((R + z - |x|) / R, 0, 1)                            with a span z (per head or per query); 1 without
//   w_ij = m_ij exp(s_ij - L_i),  L_i = ln sum_j m_ij exp(s_ij)     softmax over the keys j that query i sees
//   w_ij = m_ij F(s_ij)                                             pointwise, F any function
//   o_i  = sum_j d_ij w_ij v_j                                      d = 0 or 1 / (1 - dropout); 1 without dropout
//
// Persistent slots are further keys and values, the same for every query of the batch, read jointly with the context:
// they have no distance, m = 1, and every query sees them.
//
// Backward, given do_i, and perhaps gradients dS_i and dH_i of two row statistics (the sum S of the weights and their
// entropy H), recomputes s and w from q, k and L:
//
//   dv_j = sum_i d_ij w_ij do_i              g_ij = d_ij <do_i, v_j> + dS_i - dH_i (ln(w_ij / P_i) + H_i) / P_i
//   ds_ij = w_ij (g_ij - c_i)                softmax, c_i = <do_i, o_i> + dS_i = sum_j w_ij g_ij
//   ds_ij = m_ij F'(s_ij) g_ij               pointwise
//   dm_ij = exp(s_ij - L_i) (g_ij - c_i)     softmax;   F(s_ij) g_ij pointwise
//   dz    = sum dm_ij / R  where 0 < m_ij < 1
//   dt_ij = ds_ij (1 - (s_ij / cap)^2)       db_h|x| = sum dt_ij,   dp_|x| = scale sum dt_ij q_i
//   dq_i = scale sum_j dt_ij (k_j + p_|x|)   dk_j = scale sum_i dt_ij q_i
//
// P is the sum of the positive weights, and the entropy's term exists only where w > 0: H = -sum (w/P) ln (w/P).  For
// softmax it follows from sum_j w_ij dH/dw_ij = 0 that H adds nothing to c.
//
// Whatever is linear stays outside: a factor of the length or of the head scales o.  A mask selects zero: what a query
// does not see has no influence on its output or gradients, be it NaN; a query that sees nothing gives 0 everywhere. A
// key with m = 0 is one that the query does not see. Products with a weight of exactly zero may be left out.
//
// Memory: forward keeps L, one number per query and head, for softmax, and nothing for pointwise.  With bf16, or a head
// size that is no multiple of 16, both passes work on converted copies of their operands.  Gradients of the terms of
// the distance and of spans per head are first added up in at most 16 parts.
// Source of the scheme: Dao et al. 2022, arXiv:2205.14135; Rabe and Staats 2021, arXiv:2112.05682.
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/base/random.h"

namespace orrery {

struct AttendSizes {
  int64_t batch, queries, keys;
  int64_t query_heads, key_heads;  // query head h reads key head h / (query_heads / key_heads)
  int64_t head_size, value_size;
  int64_t slots = 0;      // persistent keys and values
  int64_t distances = 0;  // rows of the terms of the distance; |x| must stay below for every key that is seen
};

struct AttendOptions {
  double scale = 1;
  bool causal = false;                          // query i sees key j only if j <= i + query_offset
  bool attend_to_self = true;                   // if not: query i does not see the key at distance 0
  int64_t query_offset = 0;                     // place of query 0 among the keys
  int64_t window = 0;                           // if not 0: query i sees key j only if |i + query_offset - j| < window
  const int32_t* key_lengths = nullptr;         // (batch): keys beyond this length are seen by nobody
  const int32_t* query_document_ids = nullptr;  // (batch, queries) and (batch, keys), both or none:
  const int32_t* key_document_ids = nullptr;    //   a query sees the keys of its own document
  double soft_cap = 0;                          // 0: none
  double ramp = 0;                              // R of the span, if one is given
  bool span_per_query = false;                  // the span is (batch, query_heads, queries); otherwise (query_heads)
  // Share of the weights that is set to zero.  Row r of (batch, query_heads, queries) keeps its weight at key j if word
  // j % 4 of random_key.now().bits(r * ceil((keys + slots) / 4) + j / 4) is at least dropout 2^32; slot n counts as key
  // keys + n.
  double dropout = 0;
  LateKey random_key = {};
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
  Tokens<const T> slot_key = {}, slot_value = {};  // (slots, key_heads, head_size or value_size)
  Tokens<const T> relative_embedding = {};         // p: (distances, head_size), the same for all heads
  const Arithmetic<T>* relative_bias = nullptr;    // b: (query_heads, distances)
  const Arithmetic<T>* span = nullptr;             // z in tokens
};
template <class T>
struct AttendGradients {  // overwritten, not added to; one without data is not computed
  Tokens<T> query = {}, key = {}, value = {};
  Tokens<T> slot_key = {}, slot_value = {}, relative_embedding = {};
  Arithmetic<T>*relative_bias = nullptr, *span = nullptr;
};

// Numbers about the weights of every query, (batch, query_heads, queries) each; those without a pointer are not
// written. Dropout plays no part in them.  All are 0 for a query that sees nothing.
template <class A>
struct RowStatistics {
  A* sum = nullptr;           // of the weights
  A* positive_sum = nullptr;  // of those above zero
  A* entropy = nullptr;       // -sum p ln p in nats, p = max(w, 0) / (their sum)
  A* zero_share = nullptr;    // share of exact zeros among the keys that are seen
  A* maximum = nullptr;       // largest weight
};

// Row statistics that the loss depends on: what attend_statistics wrote, and the gradients with respect to it, all
// (batch, query_heads, queries). A gradient without data is zero.
template <class A>
struct StatisticsGradients {
  const A *positive_sum = nullptr, *entropy = nullptr;           // P and H
  const A *sum_gradient = nullptr, *entropy_gradient = nullptr;  // dS and dH
};

}  // namespace orrery
