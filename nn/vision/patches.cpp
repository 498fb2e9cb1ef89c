// Patch embedding. Dosovitskiy et al. 2021, arXiv:2010.11929, equation 1.
//   y[b, t, n] = bias[n] + sum over i, j, k of W[n, i, j, k] x[b, R h + i, S w + j, k],   t = R (W / w) + S
// This is a convolution with stride equal to the window. Windows are disjoint, so their matrix X is
// the image in another order: a reshape to (B, H/h, h, W/w, w C) and a swap of the two middle axes,
// undone in backward. The rest is a linear layer: Y = X W^T + bias, dX = dY W, dW = dY^T X,
// dbias = sum of the rows of dY. Saved for backward: X and W.
#include "nn/vision/patches.h"

#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/layers/layer.h"
#include "nn/layers/linear.h"

namespace orrery::nn {
namespace {

Tensor reference(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Pixels size(weight.size(1), weight.size(2));
  const WindowGrid grid = window_grid("patches", x.shape(), size, {.stride = size});
  const int64_t n = weight.size(0), row = weight.numel() / n;
  const Tensor elements = elements_of_windows(x, grid, 0).reshape(Shape{grid.batch, grid.windows(), row});
  return matmul(elements, weight.reshape(Shape{n, row}), {.b = true}) + bias;
}

constexpr Info patches_layer{.name = "patches",
                             .formula = "each patch of h x w pixels as one row, times W^T, + b",
                             .source = "Dosovitskiy et al. 2021, arXiv:2010.11929",
                             .parameters = "W and b U(-a, a), a = 1 / sqrt(height width channels)",
                             .saves = "the rows"};
REGISTER_LAYER(patches_layer);

GradientCase gradient_case(const CaseTensors& random) {
  return {{{"x", random({2, 6, 6, 3})}, {"weight", random({5, 2, 3, 3})}, {"bias", random({5})}},
          [](const auto& in) { return patch_embedding(in[0], in[1], in[2]); },
          [](const auto& in) { return reference(in[0], in[1], in[2]); }};
}
REGISTER_GRADIENT_CASE("layer", "patches", gradient_case);

}  // namespace

Tensor patches(const Tensor& x, Pixels size) {
  const WindowGrid grid = window_grid("patches", x.shape(), size, {.stride = size});
  const int64_t h = size.vertical, w = size.horizontal;
  check(x.size(1) % h == 0 && x.size(2) % w == 0, "patches: an image of ", x.size(1), " x ", x.size(2),
        " pixels cannot be divided into patches of ", size, "; resize or crop it");
  const int64_t down = grid.vertical.windows, across = grid.horizontal.windows, line = w * grid.channels;
  return permute(x.reshape(Shape{grid.batch, down, h, across, line}), {0, 1, 3, 2, 4})
      .reshape(Shape{grid.batch, down * across, h * line});
}

Tensor patch_embedding(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check(weight.shape().rank() == 4, "patches: the weight ", weight.shape(),
        " must be (outputs, height, width, channels)");
  check(x.shape().rank() == 4 && x.size(3) == weight.size(3), "patches: the input ", x.shape(),
        " does not fit the weight ", weight.shape(), "; the last axes, the channels, must be equal");
  const int64_t row = weight.size(1) * weight.size(2) * weight.size(3);
  return linear(patches(x, {weight.size(1), weight.size(2)}), weight.reshape(Shape{weight.size(0), row}), bias);
}

}  // namespace orrery::nn
