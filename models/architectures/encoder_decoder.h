// An encoder-decoder: the encoder reads the source; the decoder writes the target, with cross
// attention to the encoder output. Vaswani et al. 2017, arXiv:1706.03762.
//   encoder output = N(encoder steps of  s E[source] + positions)      attention, feed-forward
//   logits         = N(decoder steps of  s E[target] + positions) E^T  causal attention, cross attention, feed-forward
// E: one table for source, target and head, or separate ones; s: embedding_scale; N: final_normalization.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/settings/config.h"
#include "models/architectures/block.h"
#include "models/architectures/embedding_scale.h"
#include "models/architectures/headed_model.h"
#include "models/architectures/residual_step.h"
#include "models/model.h"
#include "models/translation_model.h"
#include "nn/layers/embedding.h"
#include "nn/positions/base/position.h"

namespace orrery::models {

struct EncoderDecoderSettings {
  int64_t layers = 3, decoder_layers = 0, heads = 4, width = 192, context = 128;
  int64_t vocabulary = 0, d_ff = 0;
  Spec attention = parse_spec("softmax"), decoder_attention = parse_spec("same"), cross_attention = parse_spec("same"),
       feed_forward = parse_spec("dense(relu)"), normalization = parse_spec("layer"),
       attention_normalization = parse_spec("same"), feed_forward_normalization = parse_spec("same"),
       final_normalization = parse_spec("same"), position = parse_spec("sinusoidal(scale=1)");
  bool bias = true, normalization_bias = true, shared_embedding = true, tied_head = true;
  double dropout = 0.1;
  Spec initialization = parse_spec("relu_former");
  Spec embedding_scale = parse_spec("sqrt_width");
  std::string mask = "full", decoder_mask = "causal", norm_place = "pre";

  template <class V>
  void visit(V& v) {
    v.common("layers", layers, "layers of encoder and decoder; of the encoder alone if decoder_layers is not 0",
             between(1, 4096));
    v("decoder_layers", decoder_layers, "layers of the decoder (0: as many as in the encoder)", between(0, 4096));
    v.common("heads", heads, "attention heads per layer", between(1, 65536));
    v.common("width", width, "channels of the residual stream", between(1, 65536));
    v.common("context", context, "maximum number of tokens of a source or a target", between(1, 16777216));
    v("vocabulary", vocabulary, "number of tokens; 0: the tokenizer's", between(0, 1048576));
    visit_d_ff(v, *this);
    v.common("attention", attention,
             "self-attention from `orrery list attention`; of the decoder too if decoder_attention=same",
             name_of_family("attention"));
    v("decoder_attention", decoder_attention, "self-attention of the decoder; same: as attention",
      name_of_family("attention"));
    v("mask", mask, "keys that a token of the source attends to; names: `orrery list mask`");
    v("decoder_mask", decoder_mask, "keys that a token of the target attends to; names: `orrery list mask`");
    v("cross_attention", cross_attention, "attention of the decoder to the source; same: as attention",
      name_of_family("attention"));
    visit_feed_forward_and_normalization(v, *this);
    visit_own_normalizations(v, *this);
    v("final_normalization", final_normalization,
      "normalization after encoder and decoder; same: as in the layers, but none with norm_place=post",
      name_of_family("normalization"));
    v.common("position", position, "position encoding from `orrery list position`", name_of_family("position"));
    v("bias", bias, "biases in linear layers");
    v("normalization_bias", normalization_bias, "biases in normalizations");
    visit_dropout(v, *this);
    visit_norm_place(v, *this);
    v("shared_embedding", shared_embedding, "use one embedding table for source and target");
    v("tied_head", tied_head, "use the target's embedding table as the head");
    v("embedding_scale", embedding_scale, embedding_scale_help);
    visit_initialization(v, *this);
  }
};

class EncoderDecoder final : public TranslationModel, public HeadedModel {
 public:
  static inline const ModelInfo info{
      .name = "encoder_decoder",
      .description = "an encoder-decoder transformer, from a source to a target sequence",
      .source = "Vaswani et al. 2017, arXiv:1706.03762",
      .task = "translation"};
  using Settings = EncoderDecoderSettings;

  explicit EncoderDecoder(const EncoderDecoderSettings& settings);
  static void check_early(const EncoderDecoderSettings& settings);
  // Sources (B, Ts), targets (B, Tt) -> logits (B, Tt, vocabulary): models/translation_model.h.
  void encode(const Tensor& sources, const Tensor& lengths, nn::ForwardPass& pass) override;
  Tensor forward(const Tensor& targets, nn::ForwardPass& pass) override;
  Tensor before_head(const Tensor& states, nn::ForwardPass& pass) override;  // (B, Tt, width), of the decoder
  Head head() const override { return {head_.value ? head_.value : target_embedding().weight.value, {}}; }
  int64_t context() const override { return settings_.context; }
  int64_t vocabulary() const override { return settings_.vocabulary; }
  void visit(nn::Visitor& v) override;
  const EncoderDecoderSettings& settings() const { return settings_; }

 private:
  struct Stack {                               // encoder or decoder
    std::unique_ptr<nn::Embedding> embedding;  // null: the encoder's
    std::unique_ptr<nn::Position> position;
    nn::Dropout dropout;
    std::vector<std::pair<std::string, std::unique_ptr<ResidualStep>>> steps;  // names and modules
    std::unique_ptr<nn::Module> norm;
  };
  Stack make_stack(bool decoder);
  void visit(nn::Visitor& v, const std::string& name, Stack& stack);
  Tensor run(Stack& stack, const Tensor& tokens, nn::ForwardPass& pass);
  const nn::Embedding& target_embedding() const {
    return decoder_.embedding ? *decoder_.embedding : *encoder_.embedding;
  }

  EncoderDecoderSettings settings_;
  nn::Parameter attention_activation_;  // shared by all attentions; undefined: each has its own, or none
  Stack encoder_, decoder_;
  LearnableScale embedding_scale_;
  nn::Parameter head_;  // undefined: tied to the embedding
};

}  // namespace orrery::models
