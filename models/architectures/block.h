// A residual block, configured by the names of its components.
#pragma once

#include <memory>

#include "models/architectures/block_settings.h"
#include "models/architectures/residual_step.h"
#include "nn/attentions/base/attention.h"
#include "nn/feed_forwards/base/feed_forward.h"
#include "nn/normalizations/base/normalization.h"

namespace orrery::models {

struct BlockOptions {
  int64_t width = 128, heads = 4, d_ff = 512;
  int64_t kv_heads = 0, head_size = 0;  // 0: as many as heads; width / heads
  Spec attention = parse_spec("softmax"), feed_forward = parse_spec("dense(gelu_tanh)"),
       normalization = parse_spec("layer");
  // For one sublayer; same: `normalization`.
  Spec attention_normalization = parse_spec("same"), feed_forward_normalization = parse_spec("same");
  bool causal = true;
  bool bias = false;                                                // in linear layers
  std::optional<bool> attention_bias = {}, feed_forward_bias = {};  // for one sublayer; none: `bias`
  bool query_key_bias = false;                                      // for queries and keys, regardless of the above
  bool normalization_bias = true;
  double dropout = 0;                      // fraction, at each sublayer's output
  int64_t layers = 1;                      // of the model
  int64_t context = 0;                     // maximum number of tokens; 0: unknown
  const nn::Position* position = nullptr;  // the model's; it must outlive the block
  nn::InitialWeights initial_weights = {};
  std::shared_ptr<const nn::NamedMask> mask = nullptr;  // null: by `causal`
  nn::Parameter* shared_activation = nullptr;     // the model's: nn/feed_forwards/base/feed_forward.h
  nn::Parameter* attention_activation = nullptr;  // likewise: nn/attentions/base/attention.h

  std::string norm_place = "pre";  // or "post"
  bool parallel = false;
  LearnableNumber residual_gain{1}, feed_forward_divisor{1}, feed_forward_residual{1};
};
// Returns the options that the settings of all models of blocks have. `attention_activation`: the
// model's parameters for attentions with parameters_per=model.
BlockOptions block_options(const auto& s, const nn::Position& position, nn::Parameter& attention_activation) {
  return {.width = s.width,
          .heads = s.heads,
          .d_ff = s.d_ff,
          .attention = s.attention,
          .feed_forward = s.feed_forward,
          .normalization = s.normalization,
          .attention_normalization = s.attention_normalization,
          .feed_forward_normalization = s.feed_forward_normalization,
          .bias = s.bias,
          .dropout = s.dropout,
          .layers = s.layers,
          .position = &position,
          .initial_weights = nn::initial_weights(s.initialization, s.width),
          .attention_activation = &attention_activation,
          .norm_place = s.norm_place};
}
void set_own_biases(BlockOptions& options, const auto& s) {
  options.attention_bias = bias_override(s.attention_bias);
  options.feed_forward_bias = bias_override(s.feed_forward_bias);
  options.query_key_bias = s.attention_bias == "query_key";
}

// (B, T, width) -> (B, T, width), with A the attention, F the feed-forward and N a normalization each:
//   pre-norm      x' = x + a A(N x),   y = b x' + a F(N x') / d
//   post-norm     x' = N(x + a A(x)),  y = N(b x' + a F(x') / d)           Vaswani et al. 2017, arXiv:1706.03762
//   parallel      y = x + a A(n) + a F(n),  n = N x                        Wang and Komatsuzaki 2021, GPT-J
// a: residual_gain, one for each sublayer; learned(0) is SkipInit, De and Smith 2020, arXiv:2002.10444.
// d, b: feed_forward_divisor and feed_forward_residual; both learned(1) is the output scaling of Jha and Reagen 2025,
// arXiv:2501.03489, which trains a network without normalization and activation.
// With feed_forward=none the second step is absent, its normalization too.
class Block final : public nn::Module {
 public:
  explicit Block(const BlockOptions& options);
  Tensor forward(const Tensor& x, nn::ForwardPass& pass) override;
  Tensor after_residual(const Tensor& x,
                        nn::ForwardPass& pass) const {  // the output for x, the last residual stream state
    return (feed_forward_ ? *feed_forward_ : attention_).after_residual(x, pass);
  }
  void visit(nn::Visitor& v) override;

 private:
  bool parallel_;
  ResidualStep attention_;
  std::unique_ptr<ResidualStep> feed_forward_;  // null: no second step
};

}  // namespace orrery::models
