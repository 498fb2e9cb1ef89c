// The residual stream of an example: it begins with the embedding, and every sublayer adds to it.
//
//   r_0 = embedding,   r_k = b_k x_k + a_k      a_k: what sublayer k has added, its gain and divisor in it
//
// With pre-normalization x_k = r_(k-1), and the last state is a sum,
//   r_n = sum_k c_k a_k,   c_k = b_(k+1) ... b_n,   a_0 = r_0
// With post-normalization x_k is the normalized r_(k-1), and no such sum exists.
#pragma once

#include "models/inspection/base/analysis.h"

namespace orrery::models {

struct ResidualState {
  std::string path;        // "embedding", "decoder.embedding", or path of the sublayer before the state
  std::string name;        // name of its hook: "embedding", "blocks.0.attention.residual"
  Tensor value;            // r_k (positions, width), f32 or f64, on the CPU
  Tensor added;            // a_k, same shape; r_0 for the embedding
  double input_scale = 1;  // b_k
  double end_scale = 1;    // c_k, if the stream is a sum
  bool is_embedding() const { return path == name; }
};

struct ResidualStream {
  std::vector<ResidualState> states;
  bool is_sum = true;
  bool is_edited_after = false;  // a hook may replace a value after the last state
  const ResidualState& last() const { return states.back(); }
};

// The residual streams of one run of the model.
struct ObservedStreams {
  // In order of their start: encoder, decoder. The last stream gives the logits.
  std::vector<ResidualStream> streams;
  std::vector<std::string> final_norms;  // normalizations after the last state, "norm (layer)"
  Tensor logits;                         // of this run, as InspectedExample::run returns them
};
// Runs the model twice. Returns no streams if the model has no embedding hook.
ObservedStreams observe_streams(const InspectedExample& example);
// Returns the logits (rows, choices) of `example` with `state` (positions, width) in place of the
// last state of `last`, the last stream: the model's own final layers read it.
Tensor logits_of(const InspectedExample& example, const ResidualStream& last, const Tensor& state);
// Calls take(index, logits) for each of many states. Few matrix products compute all these logits.
void for_each_logits(const InspectedExample& example, const ResidualStream& last, std::span<const Tensor> states,
                     const std::function<void(size_t index, const Tensor& logits)>& take);
// Returns for each state the logit of each row's target, NaN where it is -1, without other logits.
std::vector<std::vector<double>> target_logits(const InspectedExample& example, const ResidualStream& last,
                                               std::span<const Tensor> states, std::span<const int32_t> targets);

// root_mean_square and plus compute in f64.
double root_mean_square(const Tensor& x);
Tensor plus(const Tensor& x, double factor, const Tensor& y);  // x + factor y

}  // namespace orrery::models
