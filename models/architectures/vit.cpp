#include "models/architectures/vit.h"

#include "engine/autograd/hooks.h"
#include "engine/ops/ops.h"
#include "models/settings/at_least_one.h"

namespace orrery::models {
namespace {

VitSettings checked(VitSettings s) {
  check_at_least_one("vit", {{"layers", s.layers}, {"heads", s.heads}, {"width", s.width}, {"patch", s.patch}});
  check_size_from_images("vit", "image_size", s.image_size);
  check_size_from_images("vit", "channels", s.channels);
  check_size_from_images("vit", "classes", s.classes);
  check(s.image_size % s.patch == 0, "vit: patch ", s.patch, " must divide image_size ", s.image_size,
        "; change one of the two");
  if (s.d_ff == 0) s.d_ff = product_of_sizes("vit: d_ff", {4, s.width});
  return s;
}

int64_t tokens_of(const VitSettings& s) {
  const int64_t side = s.image_size / s.patch;
  return side * side + (s.pooling == "class_token" ? 1 : 0);
}

}  // namespace

Vit::Vit(const VitSettings& settings)
    : settings_(checked(settings)),
      patches_(settings_.channels, settings_.patch, settings_.width,
               {.weight = nn::initial_weights(settings_.initialization, settings_.width)
                              .other(settings_.channels * settings_.patch * settings_.patch, settings_.width)}),
      position_(nn::make_position(
          settings_.position, {.context = tokens_of(settings_),
                               .width = settings_.width,
                               .heads = settings_.heads,
                               .causal = false,
                               .table_std = nn::initial_weights(settings_.initialization, settings_.width).table_std})),
      embedding_scale_(embedding_scale(settings_.embedding_scale, settings_.width, "vit")),
      embedding_dropout_(settings_.dropout),
      norm_(nn::make_normalization(final_normalization(settings_), {settings_.width, settings_.normalization_bias})),
      head_(settings_.width, settings_.classes,
            {.weight = nn::initial_weights(settings_.initialization, settings_.width)
                           .head(settings_.width, settings_.classes)}) {
  const VitSettings& s = settings_;
  head_.bias.initialization = nn::constant(s.head_bias);
  head_.weight.is_lookup_table = true;
  if (has_class_token()) {
    class_token_ = nn::Parameter(Shape{1, 1, s.width}, nn::constant(0));
    class_token_.decay = false;  // a vector
  }
  BlockOptions options = block_options(s, *position_, attention_activation_);
  options.causal = false, options.context = tokens();
  options.normalization_bias = s.normalization_bias;
  options.residual_gain = s.residual_gain;
  const auto mask = named_mask(s.mask, tokens());
  for (int64_t i = 0; i < s.layers; ++i) {
    options.mask = mask_of_layer(mask, s.mask, tokens(), i);
    blocks_.push_back(std::make_unique<Block>(options));
  }
  nn::name_paths(*this);
}

void Vit::check_early(const VitSettings& settings) { nn::NamedMask(settings.mask); }

int64_t Vit::tokens() const { return tokens_of(settings_); }

Tensor Vit::forward(const Tensor& pixels, nn::ForwardPass& pass) {
  const VitSettings& s = settings_;
  const Shape& shape = pixels.shape();
  check(shape.rank() == 4 && shape == Shape{shape[0], s.image_size, s.image_size, s.channels}, "vit: pixels of shape ",
        shape, "; they must be (batch, ", s.image_size, ", ", s.image_size, ", ", s.channels, ")");
  Tensor x = patches_(pixels.to(patches_.weight.value.dtype()), pass);
  if (class_token_.value) x = concatenate({broadcast_to(class_token_.value, Shape{shape[0], 1, s.width}), x}, 1);
  x = hook(path(), "embedding", embedding_dropout_(embedding_scale_.times((*position_)(x, pass)), pass));
  for (const auto& block : blocks_) x = (*block)(x, pass);
  return hook(path(), "logits", head_(pooled((*norm_)(x, pass)), pass));
}

Tensor Vit::before_head(const Tensor& states, nn::ForwardPass& pass) {
  return pooled((*norm_)(blocks_.back()->after_residual(states, pass), pass));
}
Tensor Vit::pooled(const Tensor& x) const {
  return class_token_.value ? slice(x, 1, 0, 1).reshape(Shape{x.size(0), settings_.width}) : mean(x, {1});
}

void Vit::visit(nn::Visitor& v) {
  v("patch_embedding", patches_);
  v("class_token", class_token_);
  v("position_embedding", position_);
  v("embedding_scale", embedding_scale_.parameter);
  v("embedding_dropout", embedding_dropout_);
  for (size_t i = 0; i < blocks_.size(); ++i) v("blocks." + std::to_string(i), blocks_[i]);
  v("attention_activation", attention_activation_);
  v("norm", norm_);
  v("head", head_);
}

REGISTER_MODEL(Vit);

}  // namespace orrery::models
