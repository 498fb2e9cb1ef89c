#include "models/architectures/encoder_decoder.h"

#include <cmath>

#include "engine/autograd/hooks.h"
#include "engine/ops/ops.h"
#include "models/settings/at_least_one.h"
#include "nn/attentions/base/attention.h"
#include "nn/base/pass_scope.h"
#include "nn/feed_forwards/base/feed_forward.h"
#include "nn/layers/linear.h"
#include "nn/normalizations/base/normalization.h"

namespace orrery::models {
namespace {

const Spec& or_same(const Spec& spec, const Spec& otherwise) { return spec.name == "same" ? otherwise : spec; }

EncoderDecoderSettings checked(EncoderDecoderSettings s) {
  check_at_least_one("encoder_decoder",
                     {{"layers", s.layers}, {"heads", s.heads}, {"width", s.width}, {"context", s.context}});
  check(s.vocabulary >= 1, "encoder_decoder: the vocabulary has ", s.vocabulary, " tokens; at least 1 is needed");
  if (s.d_ff == 0) s.d_ff = product_of_sizes("encoder_decoder: d_ff", {4, s.width});
  if (s.decoder_layers == 0) s.decoder_layers = s.layers;
  s.decoder_attention = or_same(s.decoder_attention, s.attention);
  s.cross_attention = or_same(s.cross_attention, s.attention);
  s.attention_normalization = or_same(s.attention_normalization, s.normalization);
  s.feed_forward_normalization = or_same(s.feed_forward_normalization, s.normalization);
  s.final_normalization = or_same(s.final_normalization, s.norm_place == "post" ? parse_spec("none") : s.normalization);
  return s;
}

std::shared_ptr<const nn::NamedMask> mask_of(const EncoderDecoderSettings& s, bool decoder) {
  return decoder ? causal_mask("encoder_decoder: decoder_mask", s.decoder_mask, s.context)
                 : named_mask(s.mask, s.context);
}

}  // namespace

void EncoderDecoder::check_early(const EncoderDecoderSettings& settings) {
  mask_of(settings, false);
  mask_of(settings, true);
}

EncoderDecoder::Stack EncoderDecoder::make_stack(bool decoder) {
  const EncoderDecoderSettings& s = settings_;
  const nn::InitialWeights weights = nn::initial_weights(s.initialization, s.width);
  Stack stack{nullptr, nullptr, nn::Dropout(s.dropout), {}, nullptr};
  if (!decoder || !s.shared_embedding)
    stack.embedding = std::make_unique<nn::Embedding>(s.vocabulary, s.width, weights.embedding());
  stack.position = nn::make_position(
      s.position,
      {.context = s.context, .width = s.width, .heads = s.heads, .causal = decoder, .table_std = weights.table_std});
  const auto norm = [&](const Spec& spec, bool before_attention) {
    return nn::make_normalization(spec, {s.width, s.normalization_bias, decoder, before_attention});
  };
  const auto add = [&](const std::string& name, std::unique_ptr<nn::Module> normalization,
                       std::unique_ptr<nn::Sublayer> layer) {
    if (!layer->is_noop())
      stack.steps.emplace_back(
          name, std::make_unique<ResidualStep>(std::move(normalization), std::move(layer),
                                               ResidualOptions{.dropout = s.dropout, .post = s.norm_place == "post"}));
  };
  nn::AttentionLayerOptions own{.width = s.width,
                                .heads = s.heads,
                                .causal = decoder,
                                .bias = s.bias,
                                .layers = s.layers,
                                .initial_weights = weights,
                                .context = s.context,
                                .position = stack.position.get(),
                                .shared_activation = &attention_activation_};
  nn::AttentionLayerOptions cross = own;
  cross.causal = false, cross.position = nullptr, cross.encoder_width = s.width;
  const auto mask = mask_of(s, decoder);
  for (int64_t i = 0; i < (decoder ? s.decoder_layers : s.layers); ++i) {
    const std::string layer = std::to_string(i) + ".";
    own.mask = mask_of_layer(mask, decoder ? s.decoder_mask : s.mask, s.context, i);
    add(layer + "attention", norm(s.attention_normalization, true),
        nn::make_attention(decoder ? s.decoder_attention : s.attention, own));
    if (decoder)
      add(layer + "cross_attention", norm(s.attention_normalization, true),
          nn::make_attention(s.cross_attention, cross));
    add(layer + "feed_forward", norm(s.feed_forward_normalization, false),
        nn::make_feed_forward(
            s.feed_forward,
            {.width = s.width, .d_ff = s.d_ff, .bias = s.bias, .layers = s.layers, .initial_weights = weights}));
  }
  stack.norm = norm(s.final_normalization, false);
  return stack;
}

EncoderDecoder::EncoderDecoder(const EncoderDecoderSettings& settings)
    : settings_(checked(settings)),
      encoder_(make_stack(false)),
      decoder_(make_stack(true)),
      embedding_scale_(embedding_scale(settings_.embedding_scale, settings_.width, info.name)) {
  const EncoderDecoderSettings& s = settings_;
  if (!s.tied_head) {
    head_ = nn::Parameter(Shape{s.vocabulary, s.width},
                          nn::initial_weights(s.initialization, s.width).head(s.width, s.vocabulary));
    head_.is_lookup_table = true;
  }
  nn::name_paths(*this);
}

Tensor EncoderDecoder::run(Stack& stack, const Tensor& tokens, nn::ForwardPass& pass) {
  const nn::PassScope scope(pass);
  const int64_t before = pass.offset();
  check(tokens.shape().rank() == 2 && tokens.size(1) >= 1 && before + tokens.size(1) <= settings_.context,
        "encoder_decoder: tokens of shape ", tokens.shape(), " after ", before,
        " in the cache; they must be (batch, time), with time at most ", settings_.context, " (the context) in all");
  nn::Embedding& embedding = stack.embedding ? *stack.embedding : *encoder_.embedding;
  Tensor x = embedding_scale_.times(embedding(tokens, pass));
  x = hook(&stack == &encoder_ ? "encoder" : "decoder", "embedding", stack.dropout((*stack.position)(x, pass), pass));
  for (const auto& [name, step] : stack.steps) x = (*step)(x, pass);
  return (*stack.norm)(x, pass);
}

Tensor EncoderDecoder::before_head(const Tensor& states, nn::ForwardPass& pass) {
  const bool steps = !decoder_.steps.empty();
  return (*decoder_.norm)(steps ? decoder_.steps.back().second->after_residual(states, pass) : states, pass);
}

void EncoderDecoder::encode(const Tensor& sources, const Tensor& lengths, nn::ForwardPass& pass) {
  check(!pass.cache || pass.cache->length == 0,
        "encoder_decoder: the cache already has target tokens; encode the source with an empty cache");
  nn::Cache* const cache = std::exchange(pass.cache, nullptr);
  const Tensor of_targets = std::exchange(pass.lengths, lengths);
  pass.encoder_output = run(encoder_, sources, pass);
  pass.encoder_lengths = lengths;
  pass.lengths = of_targets, pass.cache = cache;
}

Tensor EncoderDecoder::forward(const Tensor& targets, nn::ForwardPass& pass) {
  check(bool(pass.encoder_output),
        "encoder_decoder: the pass has no encoder output; encode a source in it first, as --task=translation does");
  check(!pass.cache || !is_recording(),
        "encoder_decoder: a cache cannot be used while gradients are recorded; run under NoGrad");
  const Tensor x = run(decoder_, targets, pass);
  if (pass.cache) pass.cache->length += targets.size(1);
  return hook(path(), "logits", nn::linear(x, head().weight));
}

void EncoderDecoder::visit(nn::Visitor& v, const std::string& name, Stack& stack) {
  v(name + ".embedding", stack.embedding);
  v(name + ".position", stack.position);
  v(name + ".dropout", stack.dropout);
  for (const auto& [step, module] : stack.steps) v(name + "." + step, module);
  v(name + ".norm", stack.norm);
}
void EncoderDecoder::visit(nn::Visitor& v) {
  v("embedding_scale", embedding_scale_.parameter);
  visit(v, "encoder", encoder_);
  visit(v, "decoder", decoder_);
  v("attention_activation", attention_activation_);
  v("head", head_);
}

REGISTER_MODEL(EncoderDecoder);

}  // namespace orrery::models
