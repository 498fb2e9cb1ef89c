// A GPT: token embedding, positions, blocks, a last normalization, and the embedding again as the head.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/block.h"
#include "nn/embedding.h"
#include "nn/position.h"

namespace orrery::models {

struct GptSettings {
  int64_t layers = 4, heads = 4, width = 128, context = 64;
  int64_t vocabulary = 0;  // 0: as many as the tokenizer has
  int64_t inner = 0;       // of the feed-forward; 0: 4 width
  Spec attention = parse_spec("softmax"), feed_forward = parse_spec("dense(gelu_tanh)"),
       normalization = parse_spec("layer"), position = parse_spec("learned");
  bool bias = false, normalization_bias = true;
  double dropout = 0;

  template <class V>
  void visit(V& v) {
    v("layers", layers, "blocks", at_least(1));
    v("heads", heads, "attention heads of a block", at_least(1));
    v("width", width, "channels of the residual stream", at_least(1));
    v("context", context, "tokens that the model sees at once", at_least(1));
    v("vocabulary", vocabulary, "tokens that exist; 0: as many as the tokenizer has", at_least(0));
    v("inner", inner, "slots of a feed-forward; 0: 4 width", at_least(0));
    v("attention", attention, "how a block reads its context");
    v("feed_forward", feed_forward, "how a block reads its weights");
    v("normalization", normalization, "what stands before each sublayer and before the head");
    v("position", position, "how a token knows where it stands");
    v("bias", bias, "biases in linear layers");
    v("normalization_bias", normalization_bias, "biases in normalizations");
    v("dropout", dropout, "share of the sublayers' outputs and of the embedding set to zero while training", share());
  }
};

class Gpt final : public nn::Module {
 public:
  explicit Gpt(const GptSettings& settings);
  // tokens (B, T) i32 with T at most the context -> logits (B, T, vocabulary).  With a cache in the pass, the tokens go
  // on after those that the cache holds, which count too; at the end it holds all of them.
  Tensor forward(const Tensor& tokens, nn::Pass& pass) override;
  nn::Cache make_cache() const { return {}; }  // for one batch of texts, under NoGrad
  void visit(nn::Visitor& v) override;
  const GptSettings& settings() const { return settings_; }

 private:
  GptSettings settings_;
  nn::Embedding embedding_;
  std::unique_ptr<nn::Position> position_;
  nn::Dropout embedding_dropout_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<nn::Module> norm_;
};

struct Preset {
  std::string name, description;
  GptSettings settings;
  int64_t parameters;  // with `vocabulary`
  int64_t vocabulary;  // that the published count is for
};
const Registry<Preset>& presets();  // .at(name): an error that names the nearest if there is none

}  // namespace orrery::models
