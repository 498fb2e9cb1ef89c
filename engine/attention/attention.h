// Attention on tensors, forward and backward, on CPU and GPU; engine/attention_formula/problem.h
// has the formulas. Results are bit-identical for any number of threads.
#pragma once

#include <memory>

#include "engine/math/random.h"
#include "engine/math/tile_function.h"
#include "engine/tensor/tensor.h"

namespace orrery {

struct MaskView;  // engine/attention_formula/problem.h
template <class A>
struct AttentionProblem;
template <class A>
class AttentionKernels;

// Inputs: B sequences, Tq queries and Tk keys of each, H query heads, Hk key heads (Hk divides H),
// head size D, value size Dv, N slots. Only query, key and value are required. All have one dtype,
// except that bias, span and parameters of bf16 queries are f32.
struct AttentionInputs {
  Tensor query = {};                      // (B, Tq, H, D)
  Tensor key = {}, value = {};            // (B, Tk, Hk, D), (B, Tk, Hk, Dv)
  Tensor slot_key = {}, slot_value = {};  // (N, Hk, D), (N, Hk, Dv): persistent slots, both or none
  Tensor relative_embedding = {};         // (distances, D): row |x| is added to keys at distance |x| in <q, k>
  Tensor relative_bias = {};              // (H, distances): column |x| is added to scores at distance |x|
  Tensor span = {};                       // z in tokens, (H) or (B, H, Tq): weights are 0 from |x| = z + ramp on
  Tensor parameters = {};                 // (H, n): the n learned parameters of F for each head, if it has any
};

// Visibility of single pairs, equal for all sequences and heads: `bits` and `coverage` of MaskView.
struct MaskTable {
  Tensor bits = {}, coverage = {};  // (queries, words) i32, and bytes in i32; rows and keys in whole tiles
};
// Decides single pairs by absolute positions, for references and checks: the table's origin.
class PairRule {
 public:
  virtual ~PairRule() = default;
  virtual bool visible(int64_t query, int64_t key) const = 0;
};

// The attention mask: which keys each query attends to.
struct AttentionMask {
  bool causal = true;          // query i has position i + query_offset and attends to no later key
  bool attend_to_self = true;  // if false, the key at the query's own position is masked
  int64_t query_offset = 0;    // number of cached keys before the keys of the queries
  int64_t keys_dropped = 0;    // number of keys before these that a cache dropped: beyond every span
  int64_t window = 0;          // only keys at a smaller distance are visible; 0: no window
  Tensor lengths = {};         // (B) i32: keys beyond it are masked
  Tensor query_lengths = {};   // (B) i32: queries beyond it are padding, not part of any loss
  Tensor query_document_ids = {}, key_document_ids = {};  // (B, Tq) and (B, Tk) i32, both or none
  MaskTable table = {};                       // of a named mask (nn/masks), without what `causal` and `window` express
  std::shared_ptr<const PairRule> rule = {};  // that mask as a whole; null: there is none
};

struct AttentionOptions {
  AttentionMask mask = {};
  double scale = 1;               // factor of <q, k>
  double soft_cap = 0, ramp = 0;  // soft_cap 0: none; ramp: tokens over which weights beyond the span fall to 0
  double dropout = 0;             // fraction of the weights that is set to zero
  DeviceRandomKey rng_key{};
  // Path and name of the scores for hooks (nn/attentions/base/fused.h); empty: no hooks.
  std::string_view hooked_path = {}, hooked_name = {};
};

// The function from scores to weights: w = F(s), or softmax if no function is set.
struct AttentionWeighting {
  template <class A>
  struct For {
    const TileFunction<A>* function = nullptr;
    const AttentionKernels<A>* on_device = nullptr;  // the GPU kernels of F; null without CUDA
  };
  For<float> f32 = {};  // also for bf16
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
  Tensor log_sum = {};  // L, the log of softmax's denominator: (B, H, Tq), like all below
  // Row statistics of the weights, undefined if not requested; the last two have no gradient.
  Tensor sum = {}, positive_sum = {}, entropy = {};  // sum of all weights, of those above 0; entropy in nats
  Tensor zero_fraction = {}, maximum = {};           // fraction of exact zeros among visible keys; largest weight
};

// Throws, with name and value, if a shape, dtype or option is invalid. The functions below call it.
// On a CPU they also read lengths, documents and spans: relative terms must cover all visible keys.
void check_attention(const AttentionInputs& inputs, const AttentionOptions& options);

// Returns output and log_sum.
AttentionOutput attention_forward(const AttentionInputs& inputs, const AttentionOptions& options,
                                  const AttentionWeighting& weighting);
// Returns `forward`, the result of attention_forward, with the row statistics added.
AttentionOutput attention_statistics(const AttentionInputs& inputs, const AttentionOptions& options,
                                     const AttentionWeighting& weighting, AttentionOutput forward);
// Overwrites the defined tensors of `gradients`. Softmax needs output and log_sum of `forward`, and
// an entropy gradient its statistics. `output_gradients` may define output, sum and entropy.
void attention_backward(const AttentionInputs& inputs, const AttentionOptions& options,
                        const AttentionWeighting& weighting, const AttentionOutput& forward,
                        const AttentionOutput& output_gradients, const AttentionInputs& gradients);

// Returns the mask as plain values, for the functions of engine/attention_formula/formula.h.
MaskView view_of(const AttentionMask& mask, int64_t queries, int64_t keys);
// Copies the options into a problem, whose sizes must be set already.
template <class A>
void set_options(AttentionProblem<A>& problem, const AttentionOptions& options);

// Computes a problem on the CPU. Returns the multiply-adds done, without those that masks skip.
template <class A>
int64_t attention_forward(const AttentionProblem<A>& problem, const AttentionWeighting& weighting);
template <class A>
int64_t attention_statistics(const AttentionProblem<A>& problem, const AttentionWeighting& weighting);
template <class A>
int64_t attention_backward(const AttentionProblem<A>& problem, const AttentionWeighting& weighting);

// Returns "avx512_bf16" (with vdpbf16ps where it is faster), "avx512" or "avx2": the first that the
// processor supports. Tests choose another one; an unknown or unsupported name throws an Error.
const char* attention_instruction_set();
void use_attention_instruction_set(const char* name);

}  // namespace orrery
