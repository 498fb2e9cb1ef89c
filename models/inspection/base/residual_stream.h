// The residual stream of an example: what the embedding begins and every sublayer adds to.
//
//   r_0 = embedding,   r_k = b_k x_k + a_k      a_k: what sublayer k has added, its gain and divisor in it
//
// With the normalization before the sublayers x_k = r_(k-1), and the last state is a sum,
//   r_n = sum_k c_k a_k,   c_k = b_(k+1) ... b_n,   a_0 = r_0
// With it behind them x_k is the normalized r_(k-1), and no such sum exists.
#pragma once

#include "models/inspection/base/look.h"

namespace orrery::models {

struct ResidualState {
  std::string path;   // "embedding", "decoder.embedding", or of the sublayer after which it stands
  std::string name;   // of its hook: "embedding", "blocks.0.attention.residual"
  Tensor value;       // r_k (places, width), f32 or f64, on the CPU
  Tensor added;       // a_k, the same shape; of the embedding r_0
  double kept = 1;    // b_k
  double in_end = 1;  // c_k, if the stream is a sum
  bool is_embedding() const { return path == name; }
};

struct ResidualStream {
  std::vector<ResidualState> states;
  bool is_sum = true;
  const ResidualState& last() const { return states.back(); }
};

// What one run of the model shows of its streams.
struct ObservedStreams {
  // In the order they begin: an encoder's, a decoder's.  The logits come from the last.
  std::vector<ResidualStream> streams;
  std::vector<std::string> end;  // the normalizations behind the last state, "norm (layer)"
  Tensor logits;                 // of that run, as Subject::run gives them
};
// No streams if the model shows no embedding.  The model runs twice.
ObservedStreams observe_streams(const Subject& subject);
// What the logits are if the last state of the last stream is this one, (places, width): it goes through the model's
// own end.
Tensor logits_of(const Subject& subject, const ResidualStream& last, const Tensor& state);
// The same of many states in turn, take(index, logits).  They go through the head as the rows of few products.
void each_logits(const Subject& subject, const ResidualStream& last, std::span<const Tensor> states,
                 const std::function<void(size_t index, const Tensor& logits)>& take);
// Of each state the logit of one answer in each row, NaN where the answer is -1: without the other answers' logits.
std::vector<std::vector<double>> answer_logits(const Subject& subject, const ResidualStream& last,
                                               std::span<const Tensor> states, std::span<const int32_t> answers);

// Root of the mean of the squares; and a sum, in f64.
double root_mean_square(const Tensor& x);
Tensor plus(const Tensor& x, double factor, const Tensor& y);  // x + factor y

}  // namespace orrery::models
