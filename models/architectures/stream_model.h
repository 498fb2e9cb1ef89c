// A language model of text streams: it reads text block by block and caches states of the last
// tokens of earlier blocks as constants. Sukhbaatar et al. 2019, arXiv:1905.07799 (adaptive spans),
// arXiv:1907.01470 (all-attention: persistent slots instead of feed-forwards).
//
//   h^0 = s E[token],  h^l = block_l(h^(l-1); C^l),  logits = h^L W^T + b
//   C^l: inputs of attention l in earlier blocks,  s: embedding_scale
//
// As in the authors' code: tokens do not attend to themselves, all heads and layers share one table
// of relative positions, weights are initialized by fan-in, embeddings by N(0, 1), the head is
// separate with a bias, normalizations follow residuals. Their feed-forwards have biases, their
// attentions none: bias=yes, attention_bias=no, as in the presets of their sizes. Spans cross
// blocks, so the block size changes no logit, only how far gradients flow. Their other settings:
//   --optimizer=adagrad --grad_clip=0 --learning_rate=0.07 --schedule=constant --losses.span_penalty=2e-6
#pragma once

#include <memory>
#include <vector>

#include "models/architectures/block.h"
#include "models/architectures/embedding_scale.h"
#include "models/architectures/headed_model.h"
#include "models/language_model.h"
#include "models/model.h"
#include "nn/layers/embedding.h"
#include "nn/layers/linear.h"
#include "nn/positions/base/position.h"

namespace orrery::models {

struct StreamSettings {
  int64_t layers = 4, heads = 4, width = 128, context = 64, cache_length = 256;
  int64_t vocabulary = 0;  // 0: the tokenizer's size
  int64_t d_ff = 0;        // hidden channels of the feed-forward; 0: 4 * width
  Spec attention = parse_spec("softmax(span=adaptive_span(256))"), feed_forward = parse_spec("dense(relu)"),
       normalization = parse_spec("layer"), attention_normalization = parse_spec("same"),
       feed_forward_normalization = parse_spec("same"), final_normalization = parse_spec("same"),
       position = parse_spec("relative"), initialization = parse_spec("adaptive_span"),
       embedding_scale = parse_spec("none");
  std::string mask = "causal", norm_place = "post", attention_bias = "same", feed_forward_bias = "same";
  bool bias = false;
  double dropout = 0;

  template <class V>
  void visit(V& v) {
    visit_size(v, *this);
    v.common("context", context, "tokens per block of text; gradients flow within a block", between(1, 16777216));
    v.common("cache_length|memory", cache_length,
             "cached positions before the block, without gradient; upper limit of spans", between(1, 16777215));
    v("vocabulary", vocabulary, "number of tokens; 0: the tokenizer's", between(0, 1048576));
    visit_d_ff(v, *this);
    v.common("attention", attention,
             "attention from `orrery list attention`; with a span: 'NAME(span=..., key=value, ...)'",
             name_of_family("attention"));
    visit_mask(v, *this);
    v.common("feed_forward", feed_forward,
             "feed-forward from `orrery list feed_forward`; none: all-attention, with persistent slots",
             name_of_family("feed_forward"));
    v.common("normalization", normalization,
             "normalization from `orrery list normalization`; after each sublayer, with norm_place=pre before it",
             name_of_family("normalization"));
    visit_own_normalizations(v, *this);
    v("final_normalization", final_normalization,
      "normalization before the head; same: as in the blocks, but none with norm_place=post",
      name_of_family("normalization"));
    v.common("position", position, "relative-position bias or embedding; relative, alibi or none",
             name_of_family("position"));
    v("norm_place", norm_place,
      "place of normalizations; pre: before each sublayer and the head; post: after the residual addition",
      one_of({"pre", "post"}));
    visit_initialization(v, *this);
    v("embedding_scale", embedding_scale, embedding_scale_help);
    v("bias", bias, "biases in the blocks' linear layers");
    visit_own_biases(v, *this);
    visit_dropout(v, *this);
  }
};

class StreamModel final : public LanguageModel, public HeadedModel {
 public:
  static inline const ModelInfo info{
      .name = "stream",
      .description = "a causal transformer for text streams, block by block, with a cache",
      .source = "Sukhbaatar et al. 2019, arXiv:1905.07799 and arXiv:1907.01470",
      .task = "stream_modeling"};
  using Settings = StreamSettings;

  explicit StreamModel(const StreamSettings& settings);
  static void check_early(const StreamSettings& settings);
  // tokens (B, T) i32 -> logits (B, T, vocabulary). With a cache of states (B, ...) in the pass, it
  // continues B streams and is differentiable.
  Tensor forward(const Tensor& tokens, nn::ForwardPass& pass) override;
  Tensor before_head(const Tensor& states, nn::ForwardPass& pass) override {
    return normalized(blocks_.back()->after_residual(states, pass), pass);
  }
  Head head() const override { return {head_.weight.value, head_.bias.value}; }
  int64_t context() const override { return int64_t{1} << 28; }  // only spans limit the visible tokens
  int64_t vocabulary() const override { return settings_.vocabulary; }
  void visit(nn::Visitor& v) override;
  const StreamSettings& settings() const { return settings_; }

 private:
  Tensor normalized(const Tensor& x, nn::ForwardPass& pass) { return norm_ ? (*norm_)(x, pass) : x; }

  StreamSettings settings_;
  nn::Embedding embedding_;
  LearnableScale embedding_scale_;
  std::unique_ptr<nn::Position> position_;
  nn::Dropout embedding_dropout_;
  nn::Parameter attention_activation_;  // shared by the attentions; undefined: each has its own, or none
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<nn::Module> norm_;  // with norm_place=pre
  nn::Linear head_;
};

}  // namespace orrery::models
