// Attention on tensors, on either device, forward and backward: engine/attention_formula/problem.h states the formulas.
// The same inputs give the same bits for any number of threads.
#pragma once

#include "engine/math/random.h"
#include "engine/math/tile_function.h"
#include "engine/tensor/tensor.h"

namespace orrery {

struct MaskView;  // engine/attention_formula/problem.h
template <class A>
struct AttentionProblem;
template <class A>
class AttentionKernels;

// Shapes: B sequences, Tq queries and Tk keys of each, H query heads, Hk key heads with H a multiple of Hk, head size
// D, value size Dv, N slots.  All but query, key and value may be undefined; all of one dtype, but that the bias and
// the span of bf16 queries are f32.
struct AttentionInputs {
  Tensor query = {};                      // (B, Tq, H, D)
  Tensor key = {}, value = {};            // (B, Tk, Hk, D), (B, Tk, Hk, Dv)
  Tensor slot_key = {}, slot_value = {};  // (N, Hk, D), (N, Hk, Dv): persistent slots, both or none
  Tensor relative_embedding = {};         // (distances, D)
  Tensor relative_bias = {};              // (H, distances)
  Tensor span = {};                       // (H) or (B, H, Tq), in tokens; `ramp` belongs to it
};

// Who sees whom.
struct AttentionMask {
  bool causal = true;          // query i stands at key i + query_offset and sees none beyond
  bool attend_to_self = true;  // if not: the key at a query's own place is masked
  int64_t query_offset = 0;    // keys that a cache put before those of the queries
  int64_t keys_dropped = 0;    // and before these, because a span reaches no further back
  int64_t window = 0;          // if not 0: only keys at a distance below it are visible
  Tensor lengths = {};         // (B) i32: keys beyond it are masked
  Tensor query_lengths = {};   // (B) i32: queries beyond it are padding, which no loss counts
  Tensor query_document_ids = {}, key_document_ids = {};  // (B, Tq) and (B, Tk) i32, both or none
};

struct AttentionOptions {
  AttentionMask mask = {};
  double scale = 1;               // of <q, k>
  double soft_cap = 0, ramp = 0;  // R of the span
  double dropout = 0;             // fraction of the weights that is set to zero
  LateKey random_key{};
  // Whose scores these are, for hooks (nn/attentions/base/fused.h); no name: nobody is shown them.
  std::string_view hooked_path = {}, hooked_name = {};
};

// How a score becomes a weight: w = F(s), or without functions softmax.
struct AttentionWeighting {
  template <class A>
  struct For {
    const TileFunction<A>* function = nullptr;
    const AttentionKernels<A>* on_device = nullptr;  // the same on a GPU, where there is one
  };
  For<float> f32 = {};  // bf16 too
  For<double> f64 = {};
  bool zero_below_zero = false;  // F(s) = F'(s) = 0 for s <= 0: tiles without a positive score are skipped

  bool softmax() const { return !f32.function; }
  template <class A>
  const For<A>& of() const {
    if constexpr (sizeof(A) == sizeof(float))
      return f32;
    else
      return f64;
  }
};

struct AttentionOutput {
  Tensor output = {};   // (B, Tq, H, Dv)
  Tensor log_sum = {};  // L of softmax: (B, H, Tq), like the following
  // Of the weights of each row, undefined unless asked for; the last two are not differentiable.
  Tensor sum = {}, positive_sum = {}, entropy = {};
  Tensor zero_share = {}, maximum = {};  // share of exact zeros among what is visible; largest weight
};

// Errors: shapes, dtypes and options that make no sense, by name and value.  The functions below call it, and look on a
// CPU at lengths, documents and spans as well: terms of the distance must be enough for every visible key.
void check_attention(const AttentionInputs& inputs, const AttentionOptions& options);

// output and log_sum
AttentionOutput attention_forward(const AttentionInputs& inputs, const AttentionOptions& options,
                                  const AttentionWeighting& weighting);
// The same with the row statistics of what forward gave.
AttentionOutput attention_statistics(const AttentionInputs& inputs, const AttentionOptions& options,
                                     const AttentionWeighting& weighting, AttentionOutput forward);
// Overwrites the gradients, whose undefined tensors are not computed.  Softmax needs output and log_sum of forward; a
// gradient of the entropy needs the statistics.  Of `output_gradients` output, sum and entropy count, where defined.
void attention_backward(const AttentionInputs& inputs, const AttentionOptions& options,
                        const AttentionWeighting& weighting, const AttentionOutput& forward,
                        const AttentionOutput& output_gradients, const AttentionInputs& gradients);

// The mask in plain numbers, for functions of engine/attention_formula/formula.h.
MaskView view_of(const AttentionMask& mask, int64_t queries, int64_t keys);
// The numbers of the options; the problem's sizes stand.
template <class A>
void set_options(AttentionProblem<A>& problem, const AttentionOptions& options);

// A problem on the CPU.  Returns the number of multiplications with additions that were done, which shrinks with what
// masks and spans leave.
template <class A>
int64_t attention_forward(const AttentionProblem<A>& problem, const AttentionWeighting& weighting);
template <class A>
int64_t attention_statistics(const AttentionProblem<A>& problem, const AttentionWeighting& weighting);
template <class A>
int64_t attention_backward(const AttentionProblem<A>& problem, const AttentionWeighting& weighting);

// "avx512_bf16", with vdpbf16ps where it is faster, "avx512" or "avx2": chosen once by what the processor has.  Tests
// set it; an unknown or missing one is an Error.
const char* attention_instruction_set();
void use_attention_instruction_set(const char* name);

}  // namespace orrery
