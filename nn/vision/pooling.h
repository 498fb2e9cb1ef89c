// Pooling of pictures (B, H, W, C): each channel by itself; see nn/vision/window.h for the axes and the steps.
#pragma once

#include "nn/base/module.h"
#include "nn/vision/window.h"

namespace orrery::nn {

// The largest pixel, or the mean of the pixels, under each window: (B, rows, columns, C).  Pixels beyond the picture do
// not count.  The padding may be half of the window at most, so that every window meets a pixel; dilation must be 1.
Tensor max_pool(const Tensor& x, Pixels size, const WindowSteps& steps);
Tensor average_pool(const Tensor& x, Pixels size, const WindowSteps& steps);
Tensor global_average_pool(const Tensor& x);  // the mean over all pixels: (B, C)

class MaxPool final : public Module {
 public:
  MaxPool(Pixels size, const WindowSteps& steps) : size_(size), steps_(steps) {}
  Tensor forward(const Tensor& x, Pass&) override { return max_pool(x, size_, steps_); }

 private:
  Pixels size_;
  WindowSteps steps_;
};
class AveragePool final : public Module {
 public:
  AveragePool(Pixels size, const WindowSteps& steps) : size_(size), steps_(steps) {}
  Tensor forward(const Tensor& x, Pass&) override { return average_pool(x, size_, steps_); }

 private:
  Pixels size_;
  WindowSteps steps_;
};
class GlobalAveragePool final : public Module {
 public:
  Tensor forward(const Tensor& x, Pass&) override { return global_average_pool(x); }
};

}  // namespace orrery::nn
