// A decoder-only transformer: token embedding, positions, blocks, final normalization, and a tied
// or separate head. gpt_presets.cpp has GPT-2, LLaMA and the papers' language models.
//   x = c (E[token] + positions),   x = block(x) for each,   logits = N(x) W^T + b        W = E if tied_head
// c: embedding_scale. normalization=none also removes N unless final_normalization is given.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/autograd/hooks.h"
#include "models/architectures/block.h"
#include "models/architectures/embedding_scale.h"
#include "models/architectures/headed_model.h"
#include "models/language_model.h"
#include "models/model.h"
#include "nn/layers/embedding.h"
#include "nn/layers/linear.h"
#include "nn/positions/base/position.h"

namespace orrery::models {

struct GptSettings {
  int64_t layers = 4, heads = 4, width = 128, context = 64;
  int64_t vocabulary = 0;  // 0: the tokenizer's size
  int64_t d_ff = 0;        // hidden channels of the feed-forward; 0: 4 * width
  Spec attention = parse_spec("softmax"), feed_forward = parse_spec("dense(gelu_tanh)"),
       normalization = parse_spec("layer"), final_normalization = parse_spec("same"), position = parse_spec("learned");
  bool bias = false, normalization_bias = true;
  double dropout = 0;
  std::string mask = "causal", norm_place = "pre";
  Spec embedding_scale = parse_spec("none");
  bool parallel = false;
  int64_t kv_heads = 0, head_size = 0;
  Spec attention_normalization = parse_spec("same"), feed_forward_normalization = parse_spec("same");
  std::string attention_bias = "same", feed_forward_bias = "same";
  bool head_bias = false, tied_head = true, shared_activation = false;
  Spec initialization = parse_spec("0.02");
  LearnableNumber residual_gain{1}, feed_forward_divisor{1}, feed_forward_residual{1};

  template <class V>
  void visit(V& v) {
    visit_size(v, *this);
    v.common("context", context, "maximum number of tokens per sequence", between(1, 16777216));
    v("vocabulary", vocabulary, "number of tokens; 0: the tokenizer's", between(0, 1048576));
    visit_d_ff(v, *this);
    visit_attention(v, *this);
    visit_mask(v, *this);
    visit_feed_forward_and_normalization(v, *this);
    visit_final_normalization(v, *this);
    v.common("position", position, "position encoding from `orrery list position`", name_of_family("position"));
    v("bias", bias, "biases in the linear layers of attention and feed-forward");
    v("normalization_bias", normalization_bias, "biases in normalizations");
    visit_dropout(v, *this);
    visit_norm_place(v, *this);
    v("parallel", parallel, "compute attention and feed-forward in parallel, from one normalized input");
    visit_residual_gain(v, *this);
    v("feed_forward_divisor", feed_forward_divisor, "divisor of the feed-forward's output",
      {.low = -1e6, .high = 1e6, .smallest_magnitude = 1e-6});
    v("feed_forward_residual", feed_forward_residual,
      "factor of the residual that the feed-forward's output is added to", between(-1e6, 1e6));
    v("embedding_scale", embedding_scale, embedding_scale_help);
    v("kv_heads|key_heads", kv_heads, "key and value heads, each for heads / kv_heads query heads; 0: as many as heads",
      between(0, 65536));
    v("head_size", head_size, "channels of a head; 0: width / heads", between(0, 65536));
    visit_own_normalizations(v, *this);
    visit_own_biases(v, *this);
    v("head_bias", head_bias, "add a bias to the logits");
    v("tied_head", tied_head, "use the embedding matrix as the head");
    v("shared_activation", shared_activation, "share the learned parameters of the activation among all feed-forwards");
    visit_initialization(v, *this);
  }
};

class Gpt final : public LanguageModel, public HeadedModel {
 public:
  static inline const ModelInfo info{.name = "gpt",
                                     .description = "a decoder-only (causal) transformer",
                                     .source = "Radford et al. 2019, GPT-2",
                                     .task = "language_modeling"};
  using Settings = GptSettings;

  explicit Gpt(const GptSettings& settings);
  static void check_early(const GptSettings& settings);
  // tokens (B, T) i32 -> logits (B, T, vocabulary); next: of the last token, (B, vocabulary)
  Tensor forward(const Tensor& tokens, nn::ForwardPass& pass) override { return logits(head_input(tokens, pass)); }
  Tensor next(const Tensor& tokens, nn::ForwardPass& pass) override;
  Tensor before_head(const Tensor& states, nn::ForwardPass& pass) override {
    return (*norm_)(blocks_.back()->after_residual(states, pass), pass);
  }
  Head head() const override {
    return {settings_.tied_head ? embedding_.weight.value : head_weight_.value, head_bias_.value};
  }
  int64_t context() const override { return settings_.context; }
  int64_t vocabulary() const override { return settings_.vocabulary; }
  int64_t prefix() const override { return prefix_; }
  void visit(nn::Visitor& v) override;
  const GptSettings& settings() const { return settings_; }

 private:
  Tensor head_input(const Tensor& tokens, nn::ForwardPass& pass);  // (B, T, width), normalized
  Tensor logits(const Tensor& x) const {
    return hook(path(), "logits", nn::linear(x, head().weight, head_bias_.value));
  }

  GptSettings settings_;
  int64_t prefix_ = 0;
  nn::Embedding embedding_;
  LearnableScale embedding_scale_;  // scales the sum of token embeddings and positions
  nn::Parameter activation_, attention_activation_;  // shared by the layers; undefined: each has its own, or none
  std::unique_ptr<nn::Position> position_;
  nn::Dropout embedding_dropout_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<nn::Module> norm_;
  nn::Parameter head_weight_, head_bias_;  // undefined: the embedding's weight; no bias
};

}  // namespace orrery::models
