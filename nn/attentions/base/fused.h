// Values read by weighted scores, as a recorded operation: the one that every fused attention, and every feed-forward
// read as a memory, goes through.  Formulas, masks and what is kept: engine/base/attention.h.
#pragma once

#include <optional>

#include "engine/base/random.h"
#include "engine/tensor/tensor.h"
#include "nn/activations/base/activation.h"
#include "nn/base/simple_operations.h"

namespace orrery::nn {

// Shapes: B sequences, Tq queries and Tk keys of each, H query heads, Hk key heads with H a multiple of Hk, head size
// D, value size Dv, N slots.  All but query, key and value may be undefined; all of one dtype, but that the distance
// bias and the span of bf16 queries are f32.
struct Reading {
  Tensor query = {};                      // (B, Tq, H, D)
  Tensor key = {}, value = {};            // (B, Tk, Hk, D), (B, Tk, Hk, Dv)
  Tensor slot_key = {}, slot_value = {};  // (N, Hk, D), (N, Hk, Dv): persistent slots, both or none
  Tensor relative_embedding = {};         // (distances, D)
  Tensor relative_bias = {};              // (H, distances)
  Tensor span = {};                       // (H) or (B, H, Tq), in tokens; `ramp` belongs to it
};

struct ReadingOptions {
  double scale = 1;            // of <q, k>
  bool causal = true;          // query i stands at key i + query_offset and sees none beyond
  bool attend_to_self = true;  // if not: no query sees the key at its own place
  int64_t query_offset = 0;    // keys that a cache put before those of the queries
  int64_t keys_dropped = 0;    // and before these, because a span reaches no further back
  int64_t window = 0;          // if not 0: only keys at a distance below it are seen
  double soft_cap = 0, ramp = 0;
  double dropout = 0;  // of the weights
  LateKey random_key{};
  Tensor lengths = {};        // (B) i32: keys beyond it are seen by nobody
  Tensor query_lengths = {};  // (B) i32: queries beyond it are padding, which no loss counts
  Tensor query_document_ids = {}, key_document_ids = {};  // (B, Tq) and (B, Tk) i32, both or none
};

struct Read {
  Tensor output;  // (B, Tq, H, Dv)
  // Of the weights of each row, (B, H, Tq), undefined unless asked for; the last two are not differentiable.
  Tensor sum = {}, entropy = {};
  Tensor zero_share = {}, maximum = {};  // share of exact zeros among what is seen; largest weight
};

// Without a function: softmax.
Read attend(const Reading& reading, const ReadingOptions& options, const std::optional<Activation>& function = {},
            bool statistics = false);

// ---- the same by simple operations, which store (B, H, Tq, Tk) arrays: for references, for those who watch weights,
// and for attentions whose row rule has no fused path

// (B, H, Tq, Tk + N), 0 where a query does not see
Tensor scores_of(const Reading& reading, const ReadingOptions& options);
// 1 where a query sees a key or slot, else 0; it does not see a key with m = 0.  (B or 1, H or 1, Tq, Tk + N), not
// differentiable.
Tensor visibility(const Reading& reading, const ReadingOptions& options);
// scores_of with minus infinity where a query does not see
Tensor hidden_scores(const Reading& reading, const ReadingOptions& options);
Tensor weights_of(const Reading& reading, const ReadingOptions& options, const std::optional<Activation>& function);
// sum_j d_ij w_ij v_j for any weights (B, H, Tq, Tk + N), with dropout: (B, Tq, H, Dv)
Tensor read_values(const Tensor& weights, const Reading& reading, const ReadingOptions& options);
Read attend_reference(const Reading& reading, const ReadingOptions& options, const std::optional<Activation>& function,
                      bool statistics = false);

// Sum, entropy, share of zeros and maximum of the rows of any weights; `visible` as `visibility` gives it.
Read row_statistics(const Tensor& weights, const Tensor& visible);

// 1 for the queries within query_lengths, 0 for padding, (B or 1, 1, Tq), of the dtype of row statistics.  Not
// differentiable.
Tensor real_rows(const Reading& reading, const ReadingOptions& options);
// How many keys and slots each query sees, 0 for padding: what a loss of the rows' statistics counts by.  Shape and
// dtype as above.
Tensor counted_keys(const Reading& reading, const ReadingOptions& options);

// How many keys each query sees, without regard to a span's ramp, slots not counted, f64 numbers as `dtype`:
// (B or 1, Tq).  Not differentiable.
Tensor visible_keys(const Reading& reading, const ReadingOptions& options, Dtype dtype);

}  // namespace orrery::nn
