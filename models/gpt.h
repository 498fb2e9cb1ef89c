// A GPT: token embedding, positions, blocks, a last normalization, and the embedding again as the head.
// "Normalization-free" blocks (normalization=none) keep the last normalization unless final_normalization=none.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/block.h"
#include "models/language_model.h"
#include "models/model.h"
#include "nn/layers/embedding.h"
#include "nn/positions/base/position.h"

namespace orrery::models {

struct GptSettings {
  int64_t layers = 4, heads = 4, width = 128, context = 64;
  int64_t vocabulary = 0;  // 0: as many as the tokenizer has
  int64_t d_ff = 0;        // of the feed-forward; 0: 4 width
  Spec attention = parse_spec("softmax"), feed_forward = parse_spec("dense(gelu_tanh)"),
       normalization = parse_spec("layer"), final_normalization = parse_spec("same"), position = parse_spec("learned");
  bool bias = false, normalization_bias = true;
  double dropout = 0;
  std::string norm_place = "pre", embedding_scale = "none";
  bool parallel = false;
  LearnableNumber residual_gain{1}, feed_forward_divisor{1}, feed_forward_residual{1};

  template <class V>
  void visit(V& v) {
    v("layers", layers, "blocks", between(1, 4096));
    v("heads", heads, "attention heads of a block", between(1, 65536));
    v("width", width, "channels of the residual stream", between(1, 65536));
    v("context", context, "tokens that the model sees at once", between(1, 16777216));
    v("vocabulary", vocabulary, "tokens that exist; 0: as many as the tokenizer has", between(0, 1048576));
    v("d_ff|inner", d_ff, "hidden channels of a feed-forward; 0: 4 width", between(0, 262144));
    v("attention", attention, "how a block reads its context", name_of_family("attention"));
    v("feed_forward", feed_forward, "how a block reads its weights", name_of_family("feed_forward"));
    v("normalization", normalization, "what stands before each sublayer (or after it: norm_place)",
      name_of_family("normalization"));
    v("final_normalization", final_normalization, "what stands before the head; same: as in the blocks",
      name_of_family("normalization"));
    v("position", position, "how a token knows where it stands", name_of_family("position"));
    v("bias", bias, "biases in linear layers");
    v("normalization_bias", normalization_bias, "biases in normalizations");
    v("dropout", dropout, "fraction of the sublayers' outputs and of the embedding set to zero while training",
      fraction());
    v("norm_place", norm_place, "pre: before each sublayer; post: after its residual is added",
      one_of({"pre", "post"}));
    v("parallel", parallel, "attention and feed-forward read the same normalized input");
    v("residual_gain", residual_gain, "what a sublayer's output is multiplied by; learned(0): SkipInit",
      between(-1e6, 1e6));
    v("feed_forward_divisor", feed_forward_divisor, "what the feed-forward's output is divided by",
      {.low = -1e6, .high = 1e6, .smallest = 1e-6});
    v("feed_forward_residual", feed_forward_residual, "what the residual is multiplied by where the feed-forward joins",
      between(-1e6, 1e6));
    v("embedding_scale", embedding_scale, "learned: one number from sqrt(width) multiplies the embedding, as DyT needs",
      one_of({"none", "learned"}));
  }
};

class Gpt final : public LanguageModel {
 public:
  static inline const ModelInfo info{.name = "gpt",
                                     .description = "a transformer that reads to the left",
                                     .source = "Radford et al. 2019, GPT-2",
                                     .task = "language_modeling"};
  using Settings = GptSettings;

  explicit Gpt(const GptSettings& settings);
  Tensor forward(const Tensor& tokens, nn::Pass& pass) override;
  int64_t context() const override { return settings_.context; }
  int64_t vocabulary() const override { return settings_.vocabulary; }
  void visit(nn::Visitor& v) override;
  const GptSettings& settings() const { return settings_; }

 private:
  GptSettings settings_;
  nn::Embedding embedding_;
  nn::Parameter embedding_scale_;  // of tokens and positions together; undefined if there is none
  std::unique_ptr<nn::Position> position_;
  nn::Dropout embedding_dropout_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<nn::Module> norm_;
};

}  // namespace orrery::models
