#include "nn/vision/window.h"

#include "engine/ops/ops.h"

namespace orrery::nn {

std::ostream& operator<<(std::ostream& out, const Pixels& p) { return out << p.vertical << " x " << p.horizontal; }

WindowGrid window_grid(const char* operation, const Shape& x, Pixels size, const WindowSteps& steps) {
  check(x.rank() == 4, operation, ": the input ", x, " must be (batch, height, width, channels)");
  check(x.numel() > 0, operation, ": the input ", x, " has no elements; every size must be at least 1");
  const Pixels &stride = steps.stride, &padding = steps.padding, &dilation = steps.dilation;
  const auto smaller = [](const Pixels& p) { return std::min(p.vertical, p.horizontal); };
  check(smaller(size) >= 1 && smaller(stride) >= 1 && smaller(dilation) >= 1 && smaller(padding) >= 0, operation,
        ": window ", size, ", stride ", stride, " and dilation ", dilation, " must be at least 1, padding ", padding,
        " at least 0");
  const auto extent_of = [&](int64_t spacing, int64_t taps) {
    return sum_of_sizes(operation, {product_of_sizes(operation, {spacing, taps - 1}), 1});
  };
  const Pixels extent(extent_of(dilation.vertical, size.vertical), extent_of(dilation.horizontal, size.horizontal)),
      padded_size(sum_of_sizes(operation, {x[1], padding.vertical, padding.vertical}),
                  sum_of_sizes(operation, {x[2], padding.horizontal, padding.horizontal}));
  check(extent.vertical <= padded_size.vertical && extent.horizontal <= padded_size.horizontal, operation,
        ": a window of ", extent, " pixels does not fit into the input ", x, ", which is ", padded_size,
        " with its padding of ", padding, "; use a smaller window or more padding");
  const auto axis = [](int64_t pixels, int64_t taps, int64_t step, int64_t pad, int64_t spacing, int64_t slack) {
    return WindowAxis{pixels, taps, step, pad, spacing, slack / step + 1};
  };
  return {x[0], x[3],
          axis(x[1], size.vertical, stride.vertical, padding.vertical, dilation.vertical,
               padded_size.vertical - extent.vertical),
          axis(x[2], size.horizontal, stride.horizontal, padding.horizontal, dilation.horizontal,
               padded_size.horizontal - extent.horizontal)};
}

Tensor elements_of_windows(const Tensor& x, const WindowGrid& grid, double outside) {
  const WindowAxis &down = grid.vertical, &across = grid.horizontal;
  const int64_t pixels = grid.batch * grid.pixels(), windows = grid.batch * grid.windows();
  std::vector<int32_t> indices;
  for (int64_t w = 0; w < windows; ++w)
    for (int64_t tap = 0; tap < grid.taps(); ++tap) {
      const WindowGrid::GridPosition position = grid.window(w);
      const int64_t row = down.pixel(position.down, tap / across.size),
                    column = across.pixel(position.across, tap % across.size);
      const bool inside = down.is_inside(row) && across.is_inside(column);
      indices.push_back(
          static_cast<int32_t>(inside ? grid.element(position.image, row, column) / grid.channels : pixels));
    }
  const Tensor pad = Tensor::full(Shape{1, grid.channels}, outside, x.dtype());
  return index_select(concatenate({x.reshape(Shape{pixels, grid.channels}), pad}, 0),
                      Tensor::from(Shape{windows, grid.taps()}, indices));
}

}  // namespace orrery::nn
