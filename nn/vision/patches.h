// Pictures as sequences of patches, for transformers.
#pragma once

#include <optional>

#include "nn/base/module.h"
#include "nn/vision/window.h"

namespace orrery::nn {

// x (B, H, W, C) cut into patches of h x w pixels, in reading order: (B, (H / h)(W / w), h w C), a row the pixels of
// its patch.  The patch must divide the picture.
Tensor patches(const Tensor& x, Pixels size);
// Each patch through a linear layer: weight (N, h, w, C), bias (N) or undefined; returns (B, (H / h)(W / w), N).
Tensor patch_embedding(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

class PatchEmbedding final : public Module {
 public:
  struct Options {
    bool bias = true;
    std::optional<Initialization> weight = {};  // default: uniform(1 / sqrt(h w C)), as PyTorch's
  };
  PatchEmbedding(int64_t channels, Pixels size, int64_t width, const Options& options);
  Tensor forward(const Tensor& x, Pass&) override { return patch_embedding(x, weight.value, bias.value); }
  void visit(Visitor& v) override;

  Parameter weight;  // (width, height, width of the patch, channels)
  Parameter bias;    // (width); undefined if there is none
};

}  // namespace orrery::nn
