// Convolution of pictures (B, H, W, C); see nn/vision/window.h for the order of the axes and the meaning of the steps.
#pragma once

#include <optional>

#include "nn/base/module.h"
#include "nn/vision/window.h"

namespace orrery::nn {

// x (B, H, W, C), weight (N, h, w, C), bias (N) or undefined.  Returns (B, rows, columns, N), one pixel for each
// window; what lies beyond the picture counts as 0.
Tensor convolution(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const WindowSteps& steps = {});

class Convolution final : public Module {
 public:
  struct Options {
    WindowSteps steps = {};
    bool bias = true;
    std::optional<Initialization> weight = {};  // default: uniform(1 / sqrt(h w C)), as PyTorch's
  };
  Convolution(int64_t inputs, int64_t outputs, Pixels size, const Options& options);
  Tensor forward(const Tensor& x, Pass& pass) override;
  void visit(Visitor& v) override;

  Parameter weight;  // (outputs, height, width, inputs)
  Parameter bias;    // (outputs); undefined if there is none

 private:
  WindowSteps steps_;
};

}  // namespace orrery::nn
