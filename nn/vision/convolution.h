// Convolution of images (B, H, W, C); nn/vision/window.h describes axes and steps.
#pragma once

#include <optional>

#include "nn/base/module.h"
#include "nn/vision/window.h"

namespace orrery::nn {

// x (B, H, W, C), weight (N, h, w, C), bias (N) or undefined. Returns (B, rows, columns, N), one
// pixel per window. Values beyond the image are 0.
Tensor convolution(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const WindowSteps& steps = {});

class Convolution : public Module {
 public:
  struct Options {
    WindowSteps steps = {};
    bool bias = true;
    std::optional<Initialization> weight = {};  // default: uniform(1 / sqrt(h w C)), as in PyTorch
  };
  Convolution(int64_t inputs, int64_t outputs, Pixels size, const Options& options);
  Tensor forward(const Tensor& x, ForwardPass& pass) override;  // (B, H, W, inputs) -> (B, rows, columns, outputs)
  void visit(Visitor& v) override;

  Parameter weight;  // (outputs, height, width, inputs)
  Parameter bias;    // (outputs), or undefined

 private:
  WindowSteps steps_;
};

}  // namespace orrery::nn
