// Images as sequences of patches, for transformers.
#pragma once

#include "nn/vision/convolution.h"

namespace orrery::nn {

// Cuts x (B, H, W, C) into patches of h x w pixels, in reading order: (B, (H / h)(W / w), h w C). A
// row is one patch. h must divide H and w must divide W.
Tensor patches(const Tensor& x, Pixels size);
// Embeds each patch by weight (N, h, w, C), bias (N) or undefined: (B, (H / h)(W / w), N).
Tensor patch_embedding(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

// A convolution whose windows are the patches, as a layer of tokens: weight (width, h, w, channels).
class PatchEmbedding final : public Convolution {
 public:
  PatchEmbedding(int64_t channels, Pixels size, int64_t width, const Options& options)
      : Convolution(channels, width, size, options) {}
  Tensor forward(const Tensor& x, ForwardPass&) override { return patch_embedding(x, weight.value, bias.value); }
};

}  // namespace orrery::nn
