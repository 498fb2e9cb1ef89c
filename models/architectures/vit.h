// A vision transformer: patches of an image as tokens, positions, blocks with full attention, a
// final normalization, and a linear head on the class token or on the mean of all tokens.
//   x_0 = s ([c; W_p patch_1 + b_p; ...; W_p patch_N + b_p] + P)    c: the class token, if there is one
//   z = norm(x_layers)_0  or  mean over t of norm(x_layers)_t,      logits = W_h z + b_h,  s: embedding_scale
// Dosovitskiy et al. 2021, arXiv:2010.11929; mean: Beyer et al. 2022, arXiv:2205.01580. No layer
// between z and the head ("no pre-logits"). In length-scaled attention the sequence length L is N,
// or N + 1 with a class token.
#pragma once

#include <memory>
#include <vector>

#include "models/architectures/block.h"
#include "models/architectures/embedding_scale.h"
#include "models/architectures/headed_model.h"
#include "models/image_model.h"
#include "models/model.h"
#include "nn/layers/linear.h"
#include "nn/positions/base/position.h"
#include "nn/vision/patches.h"

namespace orrery::models {

struct VitSettings {
  int64_t layers = 4, heads = 4, width = 96, patch = 4;
  int64_t image_size = 0, channels = 0, classes = 0;  // 0: from the data
  int64_t d_ff = 0;                                   // hidden channels of the feed-forward; 0: 4 * width
  std::string pooling = "mean";
  Spec attention = parse_spec("softmax"), feed_forward = parse_spec("dense(gelu)"), normalization = parse_spec("layer"),
       attention_normalization = parse_spec("same"), feed_forward_normalization = parse_spec("same"),
       final_normalization = parse_spec("same"), position = parse_spec("learned"), initialization = parse_spec("0.02"),
       embedding_scale = parse_spec("none");
  bool bias = true, normalization_bias = true;
  double dropout = 0, head_bias = 0;
  std::string mask = "full", norm_place = "pre";
  LearnableNumber residual_gain{1};

  template <class V>
  void visit(V& v) {
    visit_size(v, *this);
    v.common("patch", patch, "height and width of a patch, in pixels", between(1, 4096));
    v("image_size", image_size, "height and width in pixels, to which images are cropped and resized; 0: as they are",
      between(0, 16384));
    v("channels", channels, "channels of an image: 1 or 3; 0: as in the data", between(0, 3));
    v("classes", classes, "number of classes; 0: as in the data", between(0, 1048576));
    visit_d_ff(v, *this);
    v("pooling", pooling, "input of the head: class_token (a learned token), or mean of all patches",
      one_of({"class_token", "mean"}));
    visit_attention(v, *this);
    visit_mask(v, *this);
    visit_feed_forward_and_normalization(v, *this);
    visit_own_normalizations(v, *this);
    visit_final_normalization(v, *this);
    v.common("position", position, "position encoding from `orrery list position`; of the patches",
             name_of_family("position"));
    v("bias", bias, "biases in the blocks' linear layers");
    v("normalization_bias", normalization_bias, "biases in normalizations");
    visit_dropout(v, *this);
    v("head_bias", head_bias, "initial bias of the head; about -ln(classes) suits sigmoid cross-entropy",
      between(-1e3, 1e3));
    visit_norm_place(v, *this);
    visit_initialization(v, *this);
    v("embedding_scale", embedding_scale, embedding_scale_help);
    visit_residual_gain(v, *this);
  }
};

class Vit final : public ImageModel, public HeadedModel {
 public:
  static inline const ModelInfo info{.name = "vit",
                                     .description = "a vision transformer",
                                     .source = "Dosovitskiy et al. 2021, arXiv:2010.11929",
                                     .task = "image_classification"};
  using Settings = VitSettings;

  explicit Vit(const VitSettings& settings);
  static void check_early(const VitSettings& settings);
  // pixels (B, image_size, image_size, channels) -> logits (B, classes)
  Tensor forward(const Tensor& pixels, nn::ForwardPass& pass) override;
  void visit(nn::Visitor& v) override;
  Tensor before_head(const Tensor& states, nn::ForwardPass& pass) override;  // (B, T, C) -> (B, C)
  Head head() const override { return {head_.weight.value, head_.bias.value}; }
  int64_t image_size() const override { return settings_.image_size; }
  int64_t channels() const override { return settings_.channels; }
  int64_t classes() const override { return settings_.classes; }
  int64_t tokens() const;  // per image, with the class token
  const VitSettings& settings() const { return settings_; }

 private:
  Tensor pooled(const Tensor& x) const;  // (B, T, C) -> (B, C)
  bool has_class_token() const { return settings_.pooling == "class_token"; }

  VitSettings settings_;
  nn::PatchEmbedding patches_;
  nn::Parameter class_token_;  // undefined without a class token
  std::unique_ptr<nn::Position> position_;
  LearnableScale embedding_scale_;  // scales the sum of patches, class token and positions
  nn::Dropout embedding_dropout_;
  nn::Parameter attention_activation_;  // shared by the attentions; undefined: each has its own, or none
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<nn::Module> norm_;
  nn::Linear head_;
};

}  // namespace orrery::models
