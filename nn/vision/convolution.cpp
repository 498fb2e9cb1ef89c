// Convolution in two dimensions: a linear layer of the pixels under a window that moves.  LeCun et al. 1989, Neural
// Computation 1; as a matrix product, Chellapilla et al. 2006; dilation, Yu and Koltun 2016, arXiv:1511.07122.
//   y[b, r, c, n] = bias[n] + sum over i, j, k of W[n, i, j, k] x[b, r s - p + i d, c s - p + j d, k]
// with stride s, padding p, dilation d (each may differ down and across) and x = 0 beyond the picture.  With X the
// matrix of the windows' elements, one row (h w C numbers) for each window, W read as (N, h w C) and Y, G = dY with one
// row for each window, this is
//   Y = X W^T + bias,   dW = G^T X,   dbias = sum of the rows of G,   dX = G W
// and dx[b, r', c'] is the sum of the elements of dX that were read there: of each tap (i, j), that of the window at
// ((r' + p - i d) / s, (c' + p - j d) / s), if both are whole numbers of windows.  Every pixel gathers its own sum, so
// no two write to one place. Kept: x and W (both live anyway).  X is made for a few pictures at a time, at most
// scratch_elements numbers unless one picture has more, and again in backward.  A window of one pixel that visits every
// pixel is a linear layer.
#include "nn/vision/convolution.h"

#include <cmath>

#include "engine/autograd/autograd.h"
#include "engine/base/dispatch.h"
#include "engine/loops/loops.h"
#include "engine/matmul/matmul.h"
#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/layers/layer.h"
#include "nn/layers/linear.h"

namespace orrery::nn {
namespace {

constexpr int64_t scratch_elements = 1 << 22;

template <class T>
struct ReadWindows {  // row (window, i) of X: row i of the window
  In<T> x;
  Out<T> windows;
  WindowGrid grid;
  int64_t first;  // window of the first row
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const WindowAxis &down = grid.vertical, &across = grid.horizontal;
    const WindowGrid::Place at = grid.window(first + r / down.size);
    const int64_t line = down.pixel(at.down, r % down.size), left = across.pixel(at.across, 0);
    const Out<T> out = windows.at(r * row.n);
    if (!down.on_picture(line)) {
      row.each([&](int i) { out[i] = 0; });
      return;
    }
    const int channels = static_cast<int>(grid.channels);
    if (across.dilation == 1 && left >= 0 && left + across.size <= across.pixels) {
      const In<T> in = x.at(grid.element(at.picture, line, left));
      row.each([&](int i) { out[i] = in[i]; });
      return;
    }
    const In<T> in = x.at(grid.element(at.picture, line, 0));
    row.each([&](int i) {
      const int64_t pixel = left + i / channels * across.dilation;
      out[i] = across.on_picture(pixel) ? in[pixel * channels + i % channels] : Arithmetic<T>(0);
    });
  }
};
template <class T>
struct SumWindows {  // row (pixel) of dx: the elements of dX that were read there
  In<T> windows;
  Out<T> dx;
  WindowGrid grid;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const Out<T> out = dx.at(r * row.n);
    row.each([&](int c) { out[c] = 0; });
    grid.each_window_over(grid.pixel(r), [&](int64_t tap, const WindowGrid::Place& window) {
      const In<T> in = windows.at((grid.row_of(window) * grid.taps() + tap) * row.n);
      row.each([&](int c) { out[c] += in[c]; });
    });
  }
};

struct ConvolutionOperation {
  static constexpr const char* name = "convolution";
  WindowGrid grid;
  int64_t outputs;

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight, const Tensor& bias) const {
    saved.save(saved.needs(1) ? x : Tensor(), saved.needs(0) ? weight : Tensor());
    return dispatch(x.dtype(), name, [&]<class T>() { return forward_as<T>(x, weight, bias); });
  }
  template <class T>
  Tensor forward_as(const Tensor& x, const Tensor& weight, const Tensor& bias) const {
    const Tensor y = Tensor::empty_like(x, Shape{grid.batch, grid.vertical.windows, grid.horizontal.windows, outputs});
    const Tensor scratch = make_scratch<T>(x.device());
    in_groups([&](int64_t first, int64_t pictures) {
      read_windows<T>(x, scratch, first, pictures);
      multiply<T>(x.device(), {.m = pictures * grid.windows(), .n = outputs, .k = row_size(), .transpose_b = true},
                  scratch.data<T>(), weight.data<T>(), {y.mutable_data<T>() + first * grid.windows() * outputs},
                  {.bias = bias ? bias.data<T>() : nullptr});
    });
    return y;
  }

  Gradients<3> backward(const Saved& saved, const Tensor& dy) const {
    Gradients<3> d;
    d[2] = detail::bias_gradient(saved, 2, dy);
    dispatch(dy.dtype(), name, [&]<class T>() {
      if (saved.needs(0)) d[0] = input_gradient<T>(saved[1], dy);
      if (saved.needs(1)) d[1] = weight_gradient<T>(saved, saved[0], dy);
    });
    return d;
  }
  template <class T>
  Tensor input_gradient(const Tensor& weight, const Tensor& dy) const {
    using Sum = Arithmetic<T>;  // over windows
    const Shape shape{grid.batch, grid.vertical.pixels, grid.horizontal.pixels, grid.channels};
    const Tensor dx = Tensor::empty_like(dy, shape, dtype_of<Sum>), scratch = make_scratch<Sum>(dy.device());
    in_groups([&](int64_t first, int64_t pictures) {
      multiply<T>(dy.device(), {.m = pictures * grid.windows(), .n = row_size(), .k = outputs},
                  dy.data<T>() + first * grid.windows() * outputs, weight.data<T>(), {scratch.mutable_data<Sum>()});
      Sum* const to = dx.mutable_data<Sum>() + first * grid.pixels() * grid.channels;
      rows(dy.device(), pictures * grid.pixels(), static_cast<int>(grid.channels),
           SumWindows<Sum>{{scratch.data<Sum>()}, {to}, grid});
    });
    return dx.to(dy.dtype());
  }
  template <class T>
  Tensor weight_gradient(const Saved& saved, const Tensor& x, const Tensor& dy) const {
    using Sum = Arithmetic<T>;  // over groups
    const Saved::Place place = saved.place(1, weight_shape(), dtype_of<Sum>, dy.device());
    const Tensor scratch = make_scratch<T>(dy.device());
    in_groups([&](int64_t first, int64_t pictures) {
      read_windows<T>(x, scratch, first, pictures);
      multiply<T>(dy.device(),
                  {.m = outputs,
                   .n = row_size(),
                   .k = pictures * grid.windows(),
                   .transpose_a = true,
                   .accumulate = place.accumulate || first > 0},
                  dy.data<T>() + first * grid.windows() * outputs, scratch.data<T>(),
                  {place.gradient.template mutable_data<Sum>()});
    });
    return place.as(dy.dtype());
  }

  int64_t row_size() const { return grid.taps() * grid.channels; }  // of X
  int64_t pictures_at_once() const {
    return std::clamp<int64_t>(scratch_elements / (grid.windows() * row_size()), 1, grid.batch);
  }
  Shape weight_shape() const { return {outputs, grid.vertical.size, grid.horizontal.size, grid.channels}; }
  template <class T>
  Tensor make_scratch(Device device) const {
    return Tensor::empty(Shape{pictures_at_once() * grid.windows(), row_size()}, dtype_of<T>, device);
  }
  template <class F>
  void in_groups(const F& f) const {
    for (int64_t first = 0, step = pictures_at_once(); first < grid.batch; first += step)
      f(first, std::min(step, grid.batch - first));
  }
  template <class T>
  void read_windows(const Tensor& x, const Tensor& scratch, int64_t first, int64_t pictures) const {
    rows(x.device(), pictures * grid.windows() * grid.vertical.size,
         static_cast<int>(grid.horizontal.size * grid.channels),
         ReadWindows<T>{{x.data<T>()}, {scratch.mutable_data<T>()}, grid, first * grid.windows()});
  }
};

Tensor reference(const Tensor& x, const Tensor& weight, const Tensor& bias, const WindowSteps& steps) {
  const WindowGrid grid = window_grid("convolution", x.shape(), {weight.size(1), weight.size(2)}, steps);
  const int64_t n = weight.size(0), row = weight.numel() / n;
  const Tensor elements = elements_of_windows(x, grid, 0).reshape(Shape{grid.batch * grid.windows(), row});
  return (matmul(elements, weight.reshape(Shape{n, row}), {.b = true}) + bias)
      .reshape(Shape{grid.batch, grid.vertical.windows, grid.horizontal.windows, n});
}

constexpr Info convolution_layer{.name = "convolution",
                                 .formula = "sum over i, j, k of W[n, i, j, k] x[r s - p + i d, c s - p + j d, k] + b",
                                 .source = "LeCun et al. 1989, Neural Computation 1",
                                 .parameters = "W and b U(-a, a), a = 1 / sqrt(height width channels)",
                                 .keeps = "x"};
REGISTER_LAYER(convolution_layer);

GradientCase make_convolution_case(const CaseTensors& random, const Shape& x, const Shape& weight, WindowSteps steps) {
  return {{{"x", random(x)}, {"weight", random(weight)}, {"bias", random(Shape{weight[0]})}},
          [steps](const auto& in) { return convolution(in[0], in[1], in[2], steps); },
          [steps](const auto& in) { return reference(in[0], in[1], in[2], steps); }};
}
GradientCase plain_case(const CaseTensors& random) {
  return make_convolution_case(random, {2, 5, 7, 3}, {4, 3, 3, 3}, {});
}
GradientCase strided_case(const CaseTensors& random) {
  return make_convolution_case(random, {2, 7, 6, 2}, {3, 3, 2, 2}, {.stride = {2, 3}, .padding = {1, 2}});
}
GradientCase dilated_case(const CaseTensors& random) {
  return make_convolution_case(random, {1, 7, 9, 2}, {3, 2, 3, 2},
                               {.stride = {1, 2}, .padding = 3, .dilation = {3, 2}});
}
GradientCase one_pixel_case(const CaseTensors& random) {
  return make_convolution_case(random, {2, 3, 5, 3}, {4, 1, 1, 3}, {});
}
REGISTER_GRADIENT_CASE("layer", "convolution", plain_case);
REGISTER_GRADIENT_CASE("layer", "convolution", strided_case);
REGISTER_GRADIENT_CASE("layer", "convolution", dilated_case);
REGISTER_GRADIENT_CASE("layer", "convolution", one_pixel_case);

}  // namespace

Tensor convolution(const Tensor& x, const Tensor& weight, const Tensor& bias, const WindowSteps& steps) {
  check_same_kind("convolution", x, weight);
  check(weight.shape().rank() == 4, "convolution: the weight ", weight.shape(),
        " must be (outputs, height, width, channels)");
  const WindowGrid grid = window_grid("convolution", x.shape(), {weight.size(1), weight.size(2)}, steps);
  check(grid.channels == weight.size(3), "convolution: the input ", x.shape(), " has ", grid.channels,
        " channels, the weight ", weight.shape(), " takes ", weight.size(3), "; the last axes must be equal");
  check(!bias || bias.shape() == Shape{weight.size(0)}, "convolution: bias of shape ", bias ? bias.shape() : Shape(),
        " for weight ", weight.shape());
  if (grid.taps() == 1 && steps.stride == Pixels(1) && steps.padding == Pixels(0))
    return linear(x, weight.reshape(Shape{weight.size(0), weight.size(3)}), bias);
  return record(ConvolutionOperation{grid, weight.size(0)}, x, weight, bias);
}

Convolution::Convolution(int64_t inputs, int64_t outputs, Pixels size, const Options& options) : steps_(options.steps) {
  const Shape window{size.vertical, size.horizontal, inputs};
  const Initialization usual = uniform(1 / std::sqrt(static_cast<double>(window.numel())));
  weight = Parameter(Shape{outputs, size.vertical, size.horizontal, inputs}, options.weight.value_or(usual));
  if (options.bias) bias = Parameter(Shape{outputs}, options.weight ? constant(0) : usual);
}
Tensor Convolution::forward(const Tensor& x, Pass&) { return convolution(x, weight.value, bias.value, steps_); }
void Convolution::visit(Visitor& v) {
  v("weight", weight);
  v("bias", bias);
}

}  // namespace orrery::nn
