// Values read by weighted scores, forward and backward, tile by tile: no (queries x keys) array is ever stored.
//
//   x_ij = i + query_offset - j                                     the distance from query i back to key j
//   t_ij = scale <q_i, k_j + p_|x|> + b_h|x|                        p, b: terms of the distance; 0 without them
//   s_ij = cap tanh(t_ij / cap)                                     with a soft cap; s = t without
//   r_ij = 1 + (z - |x|) / R,  m_ij = clip(r_ij, 0, 1)              with a span z (per head or per query); else m = 1
//   w_ij = m_ij exp(s_ij - L_i),  L_i = ln sum_j m_ij exp(s_ij)     softmax over the keys j that are visible to query i
//   w_ij = m_ij F(s_ij)                                             pointwise, F any function
//   o_i  = sum_j d_ij w_ij v_j                                      d = 0 or 1 / (1 - dropout); 1 without dropout
//
// Persistent slots are further keys and values, the same for every query of the batch, read jointly with the context:
// they have no distance, m = 1, and are visible to every query.
//
// Backward, given do_i, and perhaps gradients dS_i and dH_i of two row statistics (the sum S of the weights and their
// entropy H), recomputes s and w from q, k and L:
//
//   dv_j = sum_i d_ij w_ij do_i              g_ij = d_ij <do_i, v_j> + dS_i - dH_i (ln(w_ij / P_i) + H_i) / P_i
//   ds_ij = w_ij (g_ij - c_i)                softmax, c_i = <do_i, o_i> + dS_i = sum_j w_ij g_ij
//   ds_ij = m_ij F'(s_ij) g_ij               pointwise
//   dm_ij = exp(s_ij - L_i) (g_ij - c_i)     softmax;   F(s_ij) g_ij pointwise
//   dz    = sum dm_ij / R  where 0 <= r_ij <= 1                     both ends included, as in the authors' clamp
//   dt_ij = ds_ij (1 - (s_ij / cap)^2)       db_h|x| = sum dt_ij,   dp_|x| = scale sum dt_ij q_i
//   dq_i = scale sum_j dt_ij (k_j + p_|x|)   dk_j = scale sum_i dt_ij q_i
//
// P is the sum of the positive weights, and the entropy's term exists only where w > 0: H = -sum (w/P) ln (w/P).  For
// softmax it follows from sum_j w_ij dH/dw_ij = 0 that H adds nothing to c; and its weights add up to 1 whatever the
// scores, so dS is left out there, from g and c alike.
//
// Whatever is linear stays outside: a factor of the length or of the head scales o.  A mask selects zero: what is
// masked for a query has no influence on its output or gradients, be it NaN; a query to which nothing is visible gives
// 0 everywhere. Products with a weight of exactly zero may be left out.  A key with r < 0 is masked; one with r = 0, at
// the far end of the ramp, has no weight and does not count as visible, but its score, if there is any visible key,
// tells the span what its next token would bring.  Whole z, such as the 0 most heads rest at, meet both ends exactly.
//
// Memory: forward keeps L, one number per query and head, for softmax, and nothing for pointwise.  On a CPU, a head
// size that is no multiple of 16 takes padded copies of the operands, bf16 sums of its gradients in f32 (Problem says
// which).  Those of terms of the distance and of spans per head are first added up in at most 16 parts.
// Source of the scheme: Dao et al. 2022, arXiv:2205.14135; Rabe and Staats 2021, arXiv:2112.05682.
//
// Here stands the problem as both devices take it, in plain numbers and pointers; its formulas, element by element, are
// in engine/attention_formula/formula.h, and engine/attention/attention.h is the same for tensors.
#pragma once

#include <cstdint>

#include "engine/math/random.h"

namespace orrery {

// Who sees whom.  All tokens and distances are below 2^29, so sums of two of them and `unbounded` fit into an int.
struct MaskView {
  static constexpr int unbounded = 1 << 30;
  int queries = 0, keys = 0;  // of a sequence
  int query_offset = 0;       // place of query 0 among the keys
  // Query i sees key j only if first <= j - i <= last and j - i != masked: causality, a window, the own key.
  int first = -unbounded, last = unbounded, masked = unbounded;
  const int32_t* key_lengths = nullptr;         // (batch): keys beyond this length are masked
  const int32_t* query_document_ids = nullptr;  // (batch, queries) and (batch, keys), both or none:
  const int32_t* key_document_ids = nullptr;    //   only keys of the query's own document are visible
};

// A tensor (batch, tokens, heads, size): a token's elements are dense, tokens lie `stride` elements apart.
template <class A>
struct Tokens {
  A* data = nullptr;
  int64_t stride = 0;
};

// Which weights are kept.  Row r of (batch, query_heads, queries) keeps its weight at key j if word j % 4 of
// random_key.now().bits(r * counters + j / 4) is at least `threshold`; slot n counts as key keys + n.
template <class A>
struct WeightDropout {
  LateKey random_key = {};
  int64_t counters = 0;    // of random words of a row
  uint32_t threshold = 0;  // dropout 2^32
  A kept = 0;              // the factor 1 / (1 - dropout) of weights that are kept; 0: no dropout
};

// Numbers about the weights of every query, (batch, query_heads, queries) each; those without a pointer are not
// written. Dropout plays no part in them.  All are 0 for a query to which nothing is visible.
template <class A>
struct RowStatistics {
  A* sum = nullptr;           // of the weights
  A* positive_sum = nullptr;  // of those above zero
  A* entropy = nullptr;       // -sum p ln p in nats, p = max(w, 0) / (their sum)
  A* zero_share = nullptr;    // share of exact zeros among the visible keys
  A* maximum = nullptr;       // largest weight
};
// Row statistics that the loss depends on, and the gradients with respect to it.  A gradient without data is zero.
template <class A>
struct StatisticsGradients {
  const A *positive_sum = nullptr, *entropy = nullptr;           // P and H
  const A *sum_gradient = nullptr, *entropy_gradient = nullptr;  // dS and dH
};

template <class A>
struct AttentionGradients {  // overwritten, not added to; one without data is not computed
  Tokens<A> query = {}, key = {}, value = {}, slot_key = {}, slot_value = {}, relative_embedding = {};
  A *relative_bias = nullptr, *span = nullptr;
};

// A is float or double.  All tensors of tokens are of one dtype: A, or bf16 behind pointers to float if `is_bf16`.
template <class A>
struct AttentionProblem : MaskView {
  int batch = 0, query_heads = 1, key_heads = 1;  // query head h reads key head h / (query_heads / key_heads)
  int head_size = 0, value_size = 0;
  int slots = 0;      // persistent keys and values
  int distances = 0;  // rows of the terms of the distance; |x| must stay below for every key that is not masked
  bool is_bf16 = false, span_per_query = false;  // the span is (batch, query_heads, queries); otherwise (query_heads)
  A scale = 1, soft_cap = 0, ramp = 0;           // soft cap 0: none; R of the span, if one is given
  WeightDropout<A> dropout = {};
  Tokens<const A> query = {}, key = {}, value = {};
  Tokens<const A> slot_key = {}, slot_value = {};  // (slots, key_heads, head_size or value_size)
  Tokens<const A> relative_embedding = {};         // p: (distances, head_size), the same for all heads
  const A* relative_bias = nullptr;                // b: (query_heads, distances)
  const A* span = nullptr;                         // z in tokens
  // Forward writes o (batch, queries, query_heads, value_size) and, for softmax, L (batch, query_heads, queries), which
  // is minus infinity for a query to which nothing is visible.  Statistics and backward read both for softmax.
  Tokens<A> output = {};
  A* log_sum = nullptr;
  RowStatistics<A> statistics = {};  // written
  Tokens<const A> output_gradient = {};
  StatisticsGradients<A> statistics_gradients = {};
  AttentionGradients<A> gradients = {};

  int64_t rows() const { return int64_t{batch} * query_heads * queries; }
};

// What a GPU does with a problem, compiled for one function that weighs the scores (cuda/attention/attention.h).
template <class A>
class AttentionKernels {
 public:
  virtual void forward(const AttentionProblem<A>& problem) const = 0;
  virtual void statistics(const AttentionProblem<A>& problem) const = 0;
  virtual void backward(const AttentionProblem<A>& problem) const = 0;

 protected:
  ~AttentionKernels() = default;
};

}  // namespace orrery
