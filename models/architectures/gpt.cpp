#include "models/architectures/gpt.h"

#include <cmath>

#include "engine/autograd/hooks.h"
#include "engine/ops/ops.h"
#include "models/settings/at_least_one.h"

namespace orrery::models {
namespace {

GptSettings checked(GptSettings s) {
  check_at_least_one("gpt", {{"layers", s.layers}, {"heads", s.heads}, {"width", s.width}, {"context", s.context}});
  check(s.vocabulary >= 1, "gpt: the vocabulary has ", s.vocabulary, " tokens; at least 1 is needed");
  if (s.d_ff == 0) s.d_ff = product_of_sizes("gpt: d_ff", {4, s.width});
  return s;
}

BlockOptions options_of_blocks(const GptSettings& s, const nn::Position& position, nn::Parameter& activation,
                               nn::Parameter& attention_activation) {
  BlockOptions options = block_options(s, position, attention_activation);
  set_own_biases(options, s);
  options.kv_heads = s.kv_heads, options.head_size = s.head_size;
  options.normalization_bias = s.normalization_bias;
  options.context = s.context;
  options.shared_activation = s.shared_activation ? &activation : nullptr;
  options.parallel = s.parallel;
  options.residual_gain = s.residual_gain;
  options.feed_forward_divisor = s.feed_forward_divisor;
  options.feed_forward_residual = s.feed_forward_residual;
  return options;
}

std::shared_ptr<const nn::NamedMask> mask_of(const GptSettings& s) {
  return causal_mask("gpt: mask", s.mask, s.context, true);
}

}  // namespace

Gpt::Gpt(const GptSettings& settings)
    : settings_(checked(settings)),
      embedding_(settings_.vocabulary, settings_.width,
                 nn::initial_weights(settings_.initialization, settings_.width).embedding()),
      embedding_scale_(embedding_scale(settings_.embedding_scale, settings_.width, "gpt")),
      embedding_dropout_(settings_.dropout),
      norm_(nn::make_normalization(final_normalization(settings_),
                                   {settings_.width, settings_.normalization_bias, true})) {
  const GptSettings& s = settings_;
  const nn::InitialWeights weights = nn::initial_weights(s.initialization, s.width);
  position_ = nn::make_position(s.position, {.context = s.context,
                                             .width = s.width,
                                             .heads = s.heads,
                                             .head_size = s.head_size,
                                             .table_std = weights.table_std});
  BlockOptions options = options_of_blocks(s, *position_, activation_, attention_activation_);
  const auto mask = mask_of(s);
  prefix_ = mask->facts().later.value_or(0);
  for (int64_t i = 0; i < s.layers; ++i) {
    options.mask = mask_of_layer(mask, s.mask, s.context, i);
    blocks_.push_back(std::make_unique<Block>(options));
  }
  check(!s.shared_activation || activation_.value, "gpt: shared_activation=yes, but feed_forward=", s.feed_forward,
        " has no activation with learned parameters; use one that has, such as dense(leaky_relu_learned)");
  if (!s.tied_head) head_weight_ = nn::Parameter(Shape{s.vocabulary, s.width}, weights.head(s.width, s.vocabulary));
  head_weight_.is_lookup_table = true;
  if (s.head_bias) head_bias_ = nn::Parameter(Shape{s.vocabulary}, nn::constant(0));
  nn::name_paths(*this);
}

void Gpt::check_early(const GptSettings& settings) { mask_of(settings); }

Tensor Gpt::head_input(const Tensor& tokens, nn::ForwardPass& pass) {
  check(tokens.shape().rank() == 2 && tokens.size(1) >= 1 && tokens.size(1) <= settings_.context,
        "gpt: tokens of shape ", tokens.shape(), "; they must be (batch, time), with time at most ", settings_.context,
        " (the context)");
  const int64_t after = pass.offset() + tokens.size(1);
  check(after <= settings_.context, "gpt: the cache holds ", pass.offset(), " tokens, and ", tokens.size(1),
        " more exceed the context of ", settings_.context, "; start a new cache with the last tokens");
  check(!pass.cache || !is_recording(), "gpt: a cache cannot be used while gradients are recorded; run under NoGrad");
  Tensor x = embedding_scale_.times((*position_)(embedding_(tokens, pass), pass));
  x = hook(path(), "embedding", embedding_dropout_(x, pass));
  for (const auto& block : blocks_) x = (*block)(x, pass);
  if (pass.cache) pass.cache->length = after;
  return (*norm_)(x, pass);
}
Tensor Gpt::next(const Tensor& tokens, nn::ForwardPass& pass) { return logits(last_of(head_input(tokens, pass))); }

void Gpt::visit(nn::Visitor& v) {
  v("token_embedding", embedding_);
  v("position_embedding", position_);
  v("embedding_scale", embedding_scale_.parameter);
  v("embedding_dropout", embedding_dropout_);
  for (size_t i = 0; i < blocks_.size(); ++i) v("blocks." + std::to_string(i), blocks_[i]);
  v("activation", activation_);
  v("attention_activation", attention_activation_);
  v("norm", norm_);
  v("head.weight", head_weight_);
  v("head.bias", head_bias_);
}

REGISTER_MODEL(Gpt);

}  // namespace orrery::models
