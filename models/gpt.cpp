#include "models/gpt.h"

#include <cmath>

#include "engine/ops/ops.h"
#include "nn/layers/linear.h"

namespace orrery::models {
namespace {

GptSettings checked(GptSettings s) {
  check(s.layers >= 1 && s.width >= 1 && s.context >= 1 && s.heads >= 1, "gpt: layers ", s.layers, ", heads ", s.heads,
        ", width ", s.width, " and context ", s.context, " must all be at least 1");
  check(s.vocabulary >= 1, "gpt: the vocabulary has ", s.vocabulary, " tokens; at least 1 is needed");
  if (s.d_ff == 0) s.d_ff = product_of_sizes("gpt: d_ff", {4, s.width});
  return s;
}

const Spec& final_normalization(const GptSettings& s) {
  return s.final_normalization.name == "same" ? s.normalization : s.final_normalization;
}

}  // namespace

Gpt::Gpt(const GptSettings& settings)
    : settings_(checked(settings)),
      embedding_(settings_.vocabulary, settings_.width),
      position_(nn::make_position(settings_.position,
                                  {.context = settings_.context, .width = settings_.width, .heads = settings_.heads})),
      embedding_dropout_(settings_.dropout),
      norm_(nn::make_normalization(final_normalization(settings_),
                                   {settings_.width, settings_.normalization_bias, true})) {
  const GptSettings& s = settings_;
  if (s.embedding_scale == "learned")
    embedding_scale_ = nn::Parameter(Shape{1}, nn::constant(std::sqrt(static_cast<double>(s.width))));
  for (int64_t i = 0; i < s.layers; ++i)
    blocks_.push_back(std::make_unique<Block>(BlockOptions{.width = s.width,
                                                           .heads = s.heads,
                                                           .d_ff = s.d_ff,
                                                           .attention = s.attention,
                                                           .feed_forward = s.feed_forward,
                                                           .normalization = s.normalization,
                                                           .bias = s.bias,
                                                           .normalization_bias = s.normalization_bias,
                                                           .dropout = s.dropout,
                                                           .layers = s.layers,
                                                           .context = s.context,
                                                           .position = position_.get(),
                                                           .norm_place = s.norm_place,
                                                           .parallel = s.parallel,
                                                           .residual_gain = s.residual_gain,
                                                           .feed_forward_divisor = s.feed_forward_divisor,
                                                           .feed_forward_residual = s.feed_forward_residual}));
  nn::name_paths(*this);
}

Tensor Gpt::forward(const Tensor& tokens, nn::Pass& pass) {
  check(tokens.shape().rank() == 2 && tokens.size(1) >= 1 && tokens.size(1) <= settings_.context,
        "gpt: tokens of shape ", tokens.shape(), "; they must be (batch, time) with at most ", settings_.context,
        " (the context) in time");
  const int64_t after = pass.offset() + tokens.size(1);
  check(after <= settings_.context, "gpt: the cache holds ", pass.offset(), " tokens and ", tokens.size(1),
        " come, but the context is ", settings_.context, "; begin a new cache with the last of them");
  check(!pass.cache || !recording(), "gpt: a cache keeps no history to differentiate through; run under NoGrad");
  Tensor x = (*position_)(embedding_(tokens, pass), pass);
  if (embedding_scale_.value) x = x * embedding_scale_.value;
  x = embedding_dropout_(x, pass);
  for (const auto& block : blocks_) x = (*block)(x, pass);
  if (pass.cache) pass.cache->tokens = after;
  return nn::linear((*norm_)(x, pass), embedding_.weight.value);
}

void Gpt::visit(nn::Visitor& v) {
  v("token_embedding", embedding_);
  v("position_embedding", position_);
  v("embedding_scale", embedding_scale_);
  v("embedding_dropout", embedding_dropout_);
  for (size_t i = 0; i < blocks_.size(); ++i) v("blocks." + std::to_string(i), blocks_[i]);
  v("norm", norm_);
}

REGISTER_MODEL(Gpt);

}  // namespace orrery::models
