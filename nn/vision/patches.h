// Images as sequences of patches, for transformers.
#pragma once

#include <optional>

#include "nn/base/module.h"
#include "nn/vision/window.h"

namespace orrery::nn {

// Cuts x (B, H, W, C) into patches of h x w pixels, in reading order: (B, (H / h)(W / w), h w C). A
// row is one patch. h must divide H and w must divide W.
Tensor patches(const Tensor& x, Pixels size);
// Embeds each patch by weight (N, h, w, C), bias (N) or undefined: (B, (H / h)(W / w), N).
Tensor patch_embedding(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

class PatchEmbedding final : public Module {
 public:
  struct Options {
    bool bias = true;
    std::optional<Initialization> weight = {};  // default: uniform(1 / sqrt(h w C)), as in PyTorch
  };
  PatchEmbedding(int64_t channels, Pixels size, int64_t width, const Options& options);
  Tensor forward(const Tensor& x, ForwardPass&) override { return patch_embedding(x, weight.value, bias.value); }
  void visit(Visitor& v) override;

  Parameter weight;  // (width, patch height, patch width, channels)
  Parameter bias;    // (width), or undefined
};

}  // namespace orrery::nn
