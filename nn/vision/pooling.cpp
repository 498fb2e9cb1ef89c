// Pooling. Average: LeCun et al. 1998, Proceedings of the IEEE 86; maximum: Jarrett et al. 2009,
// ICCV; global: Lin et al. 2014, arXiv:1312.4400. Per channel, for window w with n(w) pixels on it:
//   maximum   y[w] = max x,       dx[pixel] = sum of dy[w] over the windows whose largest pixel it is
//   average   y[w] = sum x / n,   dx[pixel] = sum of dy[w] / n(w) over the windows that contain it
//   global    the average with one window, the image:  dx = dy / (H W)
// Among equal maxima, the first in reading order takes the gradient; NaN in a window gives NaN.
// Pixels beyond the image count neither in sums nor in n. Every pixel gathers its own sum, so
// writes never conflict. Saved for backward: by the maximum, its tap in each window (one i32 per
// output); by averages, nothing.
#include "nn/vision/pooling.h"

#include "engine/autograd/autograd.h"
#include "engine/loops/loops.h"
#include "engine/ops/ops.h"
#include "engine/types/dispatch.h"
#include "nn/base/gradient_case.h"
#include "nn/layers/layer.h"

namespace orrery::nn {
namespace {

template <class T>
struct MaxForward {  // row r: the channels of window r
  In<T> x;
  Out<T> y;
  int32_t* max_tap;  // tap of the largest pixel
  WindowGrid grid;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const Out<T> out = y.at(r * row.n);
    int32_t* const largest = max_tap + r * row.n;
    bool first = true;
    grid.each_pixel_of(grid.window(r), [&](int64_t tap, int64_t element) {
      const In<T> in = x.at(element);
      const int32_t here = static_cast<int32_t>(tap);
      const bool is_first = first;
      row.each([&](int c) {
        const Arithmetic<T> v = in[c], top = out[c];
        const bool larger = is_first || v > top || v != v;
        out[c] = larger ? v : top;
        largest[c] = larger ? here : largest[c];
      });
      first = false;
    });
  }
};
template <class T>
struct MaxBackward {  // row r: pixel r of dx
  In<T> dy;
  const int32_t* max_tap;
  Out<T> dx;
  WindowGrid grid;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const Out<T> out = dx.at(r * row.n);
    row.each([&](int c) { out[c] = 0; });
    grid.each_window_over(grid.pixel(r), [&](int64_t tap, const WindowGrid::GridPosition& window) {
      const int64_t first = grid.row_of(window) * row.n;
      const In<T> g = dy.at(first);
      const int32_t* const largest = max_tap + first;
      const int32_t here = static_cast<int32_t>(tap);
      row.each([&](int c) { out[c] += largest[c] == here ? g[c] : Arithmetic<T>(0); });
    });
  }
};

template <class T>
struct MeanForward {  // row r: the channels of window r
  In<T> x;
  Out<T> y;
  WindowGrid grid;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const WindowGrid::GridPosition window = grid.window(r);
    const Out<T> out = y.at(r * row.n);
    row.each([&](int c) { out[c] = 0; });
    grid.each_pixel_of(window, [&](int64_t, int64_t element) {
      const In<T> in = x.at(element);
      row.each([&](int c) { out[c] += in[c]; });
    });
    const Arithmetic<T> inverse_count = 1 / static_cast<Arithmetic<T>>(grid.pixels_of(window));
    row.each([&](int c) { out[c] = out[c] * inverse_count; });
  }
};
template <class T>
struct MeanBackward {  // row r: pixel r of dx
  In<T> dy;
  Out<T> dx;
  WindowGrid grid;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const Out<T> out = dx.at(r * row.n);
    row.each([&](int c) { out[c] = 0; });
    grid.each_window_over(grid.pixel(r), [&](int64_t, const WindowGrid::GridPosition& window) {
      const In<T> g = dy.at(grid.row_of(window) * row.n);
      const Arithmetic<T> inverse_count = 1 / static_cast<Arithmetic<T>>(grid.pixels_of(window));
      row.each([&](int c) { out[c] += g[c] * inverse_count; });
    });
  }
};

Shape shape_of_windows(const WindowGrid& g) { return {g.batch, g.vertical.windows, g.horizontal.windows, g.channels}; }
Shape shape_of_pixels(const WindowGrid& g) { return {g.batch, g.vertical.pixels, g.horizontal.pixels, g.channels}; }

// Runs the row function that make(from, to) returns, on the channels of each window or pixel of the
// result. Sums bf16 in f32 and rounds once.
template <class Make>
Tensor through_f32(const char* name, const Tensor& x, const Shape& shape, const Make& make) {
  if (x.dtype() == Dtype::bf16) return through_f32(name, x.to(Dtype::f32), shape, make).to(Dtype::bf16);
  const Tensor y = Tensor::empty_like(x, shape);
  dispatch(x.dtype(), name, [&]<class T>() {
    rows(x.device(), shape.rows(), static_cast<int>(shape.last()), make.template operator()<T>(x, y));
  });
  return y;
}

struct MaxPoolOperation {
  static constexpr const char* name = "max_pool";
  WindowGrid grid;
  Tensor forward(Saved& saved, const Tensor& x) const {
    const Tensor y = Tensor::empty_like(x, shape_of_windows(grid)),
                 max_tap = Tensor::empty_like(x, y.shape(), Dtype::i32);
    dispatch(x.dtype(), name, [&]<class T>() {
      rows(x.device(), grid.batch * grid.windows(), static_cast<int>(grid.channels),
           MaxForward<T>{{x.data<T>()}, {y.mutable_data<T>()}, max_tap.mutable_data<int32_t>(), grid});
    });
    saved.save(max_tap);
    return y;
  }
  Gradients<1> backward(const Saved& saved, const Tensor& dy) const {
    return {through_f32(name, dy, shape_of_pixels(grid), [&]<class T>(const Tensor& from, const Tensor& to) {
      return MaxBackward<T>{{from.data<T>()}, saved[0].data<int32_t>(), {to.mutable_data<T>()}, grid};
    })};
  }
};

struct AveragePoolOperation {
  static constexpr const char* name = "average_pool";
  WindowGrid grid;
  Tensor forward(Saved&, const Tensor& x) const {
    return through_f32(name, x, shape_of_windows(grid), [&]<class T>(const Tensor& from, const Tensor& to) {
      return MeanForward<T>{{from.data<T>()}, {to.mutable_data<T>()}, grid};
    });
  }
  Gradients<1> backward(const Saved&, const Tensor& dy) const {
    return {through_f32(name, dy, shape_of_pixels(grid), [&]<class T>(const Tensor& from, const Tensor& to) {
      return MeanBackward<T>{{from.data<T>()}, {to.mutable_data<T>()}, grid};
    })};
  }
};

WindowGrid pool_grid(const char* operation, const Tensor& x, Pixels size, const WindowSteps& steps) {
  const WindowGrid grid = window_grid(operation, x.shape(), size, steps);
  check(steps.dilation == Pixels(1), operation, ": dilation ", steps.dilation, " is for convolutions; leave it at 1");
  check(2 * steps.padding.vertical <= size.vertical && 2 * steps.padding.horizontal <= size.horizontal, operation,
        ": padding ", steps.padding, " is more than half of the window ", size,
        "; use less, so that each window covers a pixel");
  return grid;
}

constexpr Info max_pool_layer{.name = "max_pool",
                              .formula = "the largest pixel under each window",
                              .source = "Jarrett et al. 2009, ICCV",
                              .parameters = "none",
                              .saves = "the index of the largest pixel of each window"};
constexpr Info average_pool_layer{.name = "average_pool",
                                  .formula = "the mean of the pixels under each window",
                                  .source = "LeCun et al. 1998, Proceedings of the IEEE 86",
                                  .parameters = "none",
                                  .saves = "nothing"};
constexpr Info global_average_pool_layer{.name = "global_average_pool",
                                         .formula = "the mean of all pixels",
                                         .source = "Lin et al. 2014, arXiv:1312.4400",
                                         .parameters = "none",
                                         .saves = "nothing"};
REGISTER_LAYER(max_pool_layer);
REGISTER_LAYER(average_pool_layer);
REGISTER_LAYER(global_average_pool_layer);

constexpr Pixels case_size{3, 2};
constexpr WindowSteps case_steps{.stride = {2, 1}, .padding = {1, 1}};

GradientCase max_pool_case(const CaseTensors& random) {
  return {{{"x", random({2, 5, 7, 3})}},
          [](const auto& in) { return max_pool(in[0], case_size, case_steps); },
          [](const auto& in) {
            const WindowGrid grid = pool_grid("max_pool", in[0], case_size, case_steps);
            return max(elements_of_windows(in[0], grid, -INFINITY), 1).reshape(shape_of_windows(grid));
          }};
}
GradientCase average_pool_case(const CaseTensors& random) {
  return {{{"x", random({2, 5, 7, 3})}},
          [](const auto& in) { return average_pool(in[0], case_size, case_steps); },
          [](const auto& in) {
            const WindowGrid grid = pool_grid("average_pool", in[0], case_size, case_steps);
            const Tensor ones = Tensor::full(in[0].shape(), 1, Dtype::f64);
            return (sum(elements_of_windows(in[0], grid, 0), {1}) / sum(elements_of_windows(ones, grid, 0), {1}))
                .reshape(shape_of_windows(grid));
          }};
}
GradientCase global_average_pool_case(const CaseTensors& random) {
  return {{{"x", random({2, 5, 7, 3})}},
          [](const auto& in) { return global_average_pool(in[0]); },
          [](const auto& in) {
            const Tensor pixels = in[0].reshape(Shape{2, 35, 3});
            return matmul(Tensor::full(Shape{2, 1, 35}, 1.0 / 35, Dtype::f64), pixels).reshape(Shape{2, 3});
          }};
}
REGISTER_GRADIENT_CASE("layer", "max_pool", max_pool_case);
REGISTER_GRADIENT_CASE("layer", "average_pool", average_pool_case);
REGISTER_GRADIENT_CASE("layer", "global_average_pool", global_average_pool_case);

}  // namespace

Tensor max_pool(const Tensor& x, Pixels size, const WindowSteps& steps) {
  return record(MaxPoolOperation{pool_grid("max_pool", x, size, steps)}, x);
}
Tensor average_pool(const Tensor& x, Pixels size, const WindowSteps& steps) {
  return record(AveragePoolOperation{pool_grid("average_pool", x, size, steps)}, x);
}
Tensor global_average_pool(const Tensor& x) {
  check(x.shape().rank() == 4, "global_average_pool: the input ", x.shape(),
        " must be (batch, height, width, channels)");
  return mean(x, {1, 2});
}

}  // namespace orrery::nn
