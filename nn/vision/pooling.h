// Pooling of images (B, H, W, C), per channel; nn/vision/window.h describes axes and steps.
#pragma once

#include "nn/base/module.h"
#include "nn/vision/window.h"

namespace orrery::nn {

// Return the maximum or mean of each window's pixels on the image: (B, rows, columns, C). Padding
// is at most half the window, so that every window has a pixel; dilation must be 1.
Tensor max_pool(const Tensor& x, Pixels size, const WindowSteps& steps);
Tensor average_pool(const Tensor& x, Pixels size, const WindowSteps& steps);
Tensor global_average_pool(const Tensor& x);  // mean over all pixels, (B, C)

template <Tensor (*pool)(const Tensor& x, Pixels size, const WindowSteps& steps)>
class Pooling final : public Module {
 public:
  Pooling(Pixels size, const WindowSteps& steps) : size_(size), steps_(steps) {}
  Tensor forward(const Tensor& x, ForwardPass&) override { return pool(x, size_, steps_); }

 private:
  Pixels size_;
  WindowSteps steps_;
};
using MaxPool = Pooling<max_pool>;
using AveragePool = Pooling<average_pool>;
class GlobalAveragePool final : public Module {
 public:
  Tensor forward(const Tensor& x, ForwardPass&) override { return global_average_pool(x); }
};

}  // namespace orrery::nn
