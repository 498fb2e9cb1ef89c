// Attention, forward and backward, tile by tile: no (queries x keys) array is ever stored.
//
//   x_ij = i + query_offset - j                                     the distance from query i back to key j
//   t_ij = scale <q_i, k_j + p_|x|> + b_|x|                         p, b: tables with a row for each |x|; else 0
//   s_ij = cap tanh(t_ij / cap)                                     with a soft cap; s = t without
//   r_ij = 1 + (z - |x|) / R,  m_ij = clip(r_ij, 0, 1)              span z (per head or per query), ramp R; else m = 1
//   w_ij = m_ij exp(s_ij - L_i),  L_i = ln sum_j m_ij exp(s_ij)     softmax over the keys j that are visible to query i
//   w_ij = m_ij F(s_ij)                                             pointwise, F any function, with parameters p_h
//   o_i  = sum_j d_ij w_ij v_j                                      d: dropout, 0 or 1 / (1 - dropout); 1 without
//
// Persistent slots are further keys and values, shared by all queries of the batch and weighted
// jointly with the context. They have no distance, m = 1, and are visible to every query.
//
// Backward recomputes s and w from q, k and L. Given are do_i and, optionally, gradients dS_i and
// dH_i of two row statistics: the sum S of the weights and their entropy H. A d before another
// letter marks a gradient of the loss; d_ij alone is the factor of dropout, g_ij is dw_ij.
//
//   dv_j = sum_i d_ij w_ij do_i              g_ij = d_ij <do_i, v_j> + dS_i - dH_i (ln(w_ij / P_i) + H_i) / P_i
//   ds_ij = sum_k g_ik dw_ik/ds_ij           softmax, dw_ik/ds_ij = w_ik ([j = k] - w_ij), from w = m exp(s - L)
//         = w_ij (g_ij - c_i)                c_i = <do_i, o_i> + dS_i = sum_j w_ij g_ij
//   ds_ij = m_ij F'(s_ij) g_ij               pointwise
//   dm_ij = exp(s_ij - L_i) (g_ij - c_i)     softmax;   F(s_ij) g_ij pointwise
//   dz    = sum dm_ij / R  where 0 <= r_ij <= 1                     both ends included, as in the authors' clamp
//   dp_h  = sum m_ij dF/dp(s_ij) g_ij over the pairs of head h      pointwise, F with parameters
//   dt_ij = ds_ij (1 - (s_ij / cap)^2)       db_|x| = sum dt_ij,    dp_|x| = scale sum dt_ij q_i
//   dq_i = scale sum_j dt_ij (k_j + p_|x|)   dk_j = scale sum_i dt_ij q_i
//
// P is the sum of the positive weights. The entropy term exists only where w > 0:
// H = -sum (w/P) ln (w/P). For softmax, H adds nothing to c, since sum_j w_ij dH/dw_ij = 0. Softmax
// weights sum to 1 for all scores, so dS is left out of g and c.
//
// Factors that only scale o, such as L^-alpha or one per head, are left to the caller. Masked keys
// do not affect output or gradients, even if NaN; a query without visible keys gives 0 everywhere.
// Products with a weight of exactly 0 may be skipped. A key with r < 0 is masked. A key with r = 0,
// the far end of the ramp, has weight 0 and is not visible; if another key is, its score adds to
// the gradient of the span. Integer z, such as the 0 of most heads, meet both ends exactly.
//
// Memory: forward saves L, one value per query and head, for softmax, and nothing for pointwise. On
// a CPU, head sizes that are not multiples of 16 need padded copies, and bf16 needs f32 gradient
// sums (see Problem). Gradients of relative terms, and of spans and parameters per head, are summed
// in up to 16 chunks.
// Source of the scheme: Dao et al. 2022, arXiv:2205.14135; Rabe and Staats 2021, arXiv:2112.05682.
//
// Formulas per element: engine/attention_formula/formula.h; tensors: engine/attention/attention.h.
#pragma once

#include <cstdint>

#include "engine/math/random.h"

namespace orrery {

enum class Coverage : uint8_t { none, some, all };  // how much of a tile is visible

// The attention mask as plain values; a pair must pass all of them. Counts of tokens are below 2^29, so
// that the sum of two and `unbounded` fits an int.
struct MaskView {
  static constexpr int unbounded = 1 << 30;
  int queries = 0, keys = 0;  // numbers of tokens per sequence
  int query_offset = 0;       // position of query 0 among the keys
  // Visible keys: first <= j - i <= last and j - i != masked, by causality, window and own key.
  int first = -unbounded, last = unbounded, masked = unbounded;
  const int32_t* key_lengths = nullptr;         // (batch): keys beyond this length are masked
  const int32_t* query_document_ids = nullptr;  // (batch, queries) and (batch, keys), both or none:
  const int32_t* key_document_ids = nullptr;    //   only keys of the query's own document are visible
  // A table for masks that none of these expresses, equal for all sequences and heads; null: none. Key j
  // is visible to query i if bit j % 32 of word j / 32 of row i is 1. Rows and keys are rounded up to whole
  // tiles, and each tile has a byte in `coverage` (tiles of queries, tiles of keys), of type Coverage.
  static constexpr int tile = 64;
  const uint32_t* bits = nullptr;
  const uint8_t* coverage = nullptr;
  int words = 0;  // of a row
};

// A view of (batch, tokens, heads, size). A token is contiguous; `stride`: elements between tokens.
template <class A>
struct TensorView {
  A* data = nullptr;
  int64_t stride = 0;
};

// Dropout of weights. Row r of (batch, query_heads, queries) keeps its weight at key j if word
// j % 4 of rng_key.load().bits(r * counters + j / 4) is >= threshold. Slot n has j = keys + n.
template <class A>
struct WeightDropout {
  DeviceRandomKey rng_key = {};
  int64_t counters = 0;    // per row, for four random words each
  uint32_t threshold = 0;  // dropout 2^32
  A kept = 0;              // 1 / (1 - dropout), the factor of weights that are kept; 0: no dropout
};

// Statistics of the weights of every query, (batch, query_heads, queries) each; null: not written.
// Dropout does not affect them. All are 0 for a query without visible keys.
template <class A>
struct RowStatistics {
  A* sum = nullptr;            // sum of the weights
  A* positive_sum = nullptr;   // sum of the weights above zero
  A* entropy = nullptr;        // -sum p ln p in nats, p = max(w, 0) / (their sum)
  A* zero_fraction = nullptr;  // fraction of exact zeros among the visible keys
  A* maximum = nullptr;        // largest weight
};
// Row statistics that the loss depends on, and their gradients. A gradient without data is zero.
template <class A>
struct StatisticsGradients {
  const A *positive_sum = nullptr, *entropy = nullptr;           // P and H
  const A *sum_gradient = nullptr, *entropy_gradient = nullptr;  // dS and dH
};

template <class A>
struct AttentionGradients {  // overwritten, not added to; null: not computed
  TensorView<A> query = {}, key = {}, value = {}, slot_key = {}, slot_value = {}, relative_embedding = {};
  A *relative_bias = nullptr, *span = nullptr, *parameters = nullptr;
};

// A is float or double. All TensorViews have dtype A, or bf16 behind float pointers if `is_bf16`.
template <class A>
struct AttentionProblem : MaskView {
  int batch = 0, query_heads = 1, kv_heads = 1;  // query head h uses key head h / (query_heads / kv_heads)
  int head_size = 0, value_size = 0;
  int slots = 0;            // persistent keys and values
  int parameter_count = 0;  // n, learned parameters of F for each head
  int distances = 0;        // rows of the relative-position terms; |x| must be below for every unmasked key
  bool is_bf16 = false, span_per_query = false;  // span_per_query: (batch, query_heads, queries), else (query_heads)
  A scale = 1, soft_cap = 0, ramp = 0;           // soft cap 0: none; ramp: R of the span
  WeightDropout<A> dropout = {};
  TensorView<const A> query = {}, key = {}, value = {};
  TensorView<const A> slot_key = {}, slot_value = {};  // (slots, kv_heads, head_size or value_size)
  TensorView<const A> relative_embedding = {};         // p: (distances, head_size), shared by all heads
  const A* relative_bias = nullptr;                    // b: (query_heads, distances)
  const A* span = nullptr;                             // z in tokens, which is z + 1 of nn/attentions/base/span.h
  const A* parameters = nullptr;                       // of F: (query_heads, parameter_count)
  // Forward writes o (batch, queries, query_heads, value_size); softmax also writes
  // L (batch, query_heads, queries), -inf without visible keys. Statistics read L, backward both.
  TensorView<A> output = {};
  A* log_sum = nullptr;
  RowStatistics<A> statistics = {};  // written
  TensorView<const A> output_gradient = {};
  StatisticsGradients<A> statistics_gradients = {};
  AttentionGradients<A> gradients = {};

  HOST_DEVICE int64_t rows() const { return int64_t{batch} * query_heads * queries; }
};

// The GPU kernels of a problem, compiled for one weighting function (cuda/attention/attention.h).
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
