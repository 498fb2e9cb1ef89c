// Convolution in two dimensions: a linear layer of the pixels under a window that moves.  LeCun et al. 1989, Neural
// Computation 1; as a matrix product, Chellapilla et al. 2006; dilation, Yu and Koltun 2016, arXiv:1511.07122.
//   y[b, r, c, n] = bias[n] + sum over i, j, k of W[n, i, j, k] x[b, r s - p + i d, c s - p + j d, k]
// with stride s, padding p, dilation d (each may differ down and across) and x = 0 beyond the picture.  With X the
// matrix of the windows' elements, one row (h w C numbers) for each window, W read as (N, h w C) and Y, G = dY with one
// row for each window, this is
//   Y = X W^T + bias,   dW = G^T X,   dbias = sum of the rows of G,   dX = G W
// and dx[b, r', c'] is the sum of the elements of dX that were read there: of each tap (i, j), that of the window at
// ((r' + p - i d) / s, (c' + p - j d) / s), if both are whole numbers of windows.  Every pixel gathers its own sum, so
// no two write to one place.  Where s = 1 all are whole, and the sum is a convolution itself, of G with the window
// turned about: with i' = h - 1 - i and j' = w - 1 - j
//   dx[b, r', c', k] = sum over i', j', n of W[n, h-1-i', w-1-j', k] G[b, r' - p' + i' d, c' - p' + j' d, n],
//   p' = (h - 1) d - p
// so it is one matrix product with the windows of G and needs no dX.
// Kept: x and W (both live anyway).  X is made for a few pictures at a time, so many that it stays in a cache, and
// again in backward.  A window of one pixel that visits every pixel is a linear layer.
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

// Numbers of X at a time, unless one picture has more: what a core's second cache holds, and what keeps a GPU busy.
int64_t scratch_elements(Device device) { return device == Device::cpu ? 1 << 18 : 1 << 22; }

template <class T>
struct ReadWindows {  // row (line of windows, i): row i of each of its windows
  In<T> x;
  Out<T> windows;
  WindowGrid grid;
  int64_t first;  // picture of the first row
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const WindowAxis &down = grid.vertical, &across = grid.horizontal;
    const int64_t i = r % down.size, line = r / down.size, picture = first + line / down.windows;
    const int64_t pixel_line = down.pixel(line % down.windows, i);
    const bool on_picture = down.on_picture(pixel_line);
    const In<T> in = x.at(on_picture ? grid.element(picture, pixel_line, 0) : 0);
    const int channels = static_cast<int>(grid.channels);
    for (int64_t window = 0; window < across.windows; ++window) {
      const Out<T> out = windows.at(((line * across.windows + window) * down.size + i) * row.n);
      const int64_t left = across.pixel(window, 0);
      if (!on_picture)
        row.each([&](int e) { out[e] = 0; });
      else if (across.dilation == 1 && left >= 0 && left + across.size <= across.pixels)
        row.each([&](int e) { out[e] = in[left * channels + e]; });
      else
        row.each([&](int e) {
          const int64_t pixel = left + e / channels * across.dilation;
          out[e] = across.on_picture(pixel) ? in[pixel * channels + e % channels] : Arithmetic<T>(0);
        });
    }
  }
};
template <class T>
struct TurnWindow {  // row (tap, n): W[n, h-1-i, w-1-j, :]
  In<T> weight;
  Out<T> turned;
  int64_t taps, outputs;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const int64_t tap = r / outputs, n = r % outputs;
    const In<T> in = weight.at((n * taps + taps - 1 - tap) * row.n);
    const Out<T> out = turned.at(r * row.n);
    row.each([&](int k) { out[k] = in[k]; });
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
    const Tensor scratch = make_scratch<T>(x.device(), grid);
    in_groups(x.device(), grid, [&](int64_t first, int64_t pictures) {
      read_windows<T>(x, grid, scratch, first, pictures);
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
    const bool each_pixel = grid.vertical.stride == 1 && grid.horizontal.stride == 1;
    return each_pixel ? gradient_of_turned_window<T>(weight, dy) : gathered_gradient<T>(weight, dy);
  }
  template <class T>
  Tensor gradient_of_turned_window(const Tensor& weight, const Tensor& dy) const {
    using Sum = Arithmetic<T>;
    const auto turned_axis = [](const WindowAxis& a) {
      return WindowAxis{a.windows, a.size, 1, (a.size - 1) * a.dilation - a.padding, a.dilation, a.pixels};
    };
    const WindowGrid back{grid.batch, outputs, turned_axis(grid.vertical), turned_axis(grid.horizontal)};
    const Tensor turned = Tensor::empty_like(weight, Shape{grid.taps() * outputs, grid.channels}),
                 dx = Tensor::empty_like(dy, x_shape(), dtype_of<Sum>), scratch = make_scratch<T>(dy.device(), back);
    rows(dy.device(), grid.taps() * outputs, static_cast<int>(grid.channels),
         TurnWindow<T>{{weight.data<T>()}, {turned.mutable_data<T>()}, grid.taps(), outputs});
    in_groups(dy.device(), back, [&](int64_t first, int64_t pictures) {
      read_windows<T>(dy, back, scratch, first, pictures);
      multiply<T>(dy.device(), {.m = pictures * grid.pixels(), .n = grid.channels, .k = grid.taps() * outputs},
                  scratch.data<T>(), turned.data<T>(),
                  {dx.mutable_data<Sum>() + first * grid.pixels() * grid.channels});
    });
    return dx.to(dy.dtype());
  }
  template <class T>
  Tensor gathered_gradient(const Tensor& weight, const Tensor& dy) const {
    using Sum = Arithmetic<T>;  // over windows
    const Tensor dx = Tensor::empty_like(dy, x_shape(), dtype_of<Sum>), scratch = make_scratch<Sum>(dy.device(), grid);
    in_groups(dy.device(), grid, [&](int64_t first, int64_t pictures) {
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
    const Tensor scratch = make_scratch<T>(dy.device(), grid);
    in_groups(dy.device(), grid, [&](int64_t first, int64_t pictures) {
      read_windows<T>(x, grid, scratch, first, pictures);
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
  Shape x_shape() const { return {grid.batch, grid.vertical.pixels, grid.horizontal.pixels, grid.channels}; }
  Shape weight_shape() const { return {outputs, grid.vertical.size, grid.horizontal.size, grid.channels}; }

  // ---- the windows of a grid, a few pictures at a time
  static int64_t elements_of_picture(const WindowGrid& g) { return g.windows() * g.taps() * g.channels; }
  static int64_t pictures_at_once(Device device, const WindowGrid& g) {
    return std::clamp<int64_t>(scratch_elements(device) / elements_of_picture(g), 1, g.batch);
  }
  template <class T>
  static Tensor make_scratch(Device device, const WindowGrid& g) {
    return Tensor::empty(Shape{pictures_at_once(device, g) * elements_of_picture(g)}, dtype_of<T>, device);
  }
  template <class F>
  static void in_groups(Device device, const WindowGrid& g, const F& f) {
    for (int64_t first = 0, step = pictures_at_once(device, g); first < g.batch; first += step)
      f(first, std::min(step, g.batch - first));
  }
  template <class T>
  static void read_windows(const Tensor& x, const WindowGrid& g, const Tensor& scratch, int64_t first,
                           int64_t pictures) {
    rows(x.device(), pictures * g.vertical.windows * g.vertical.size, static_cast<int>(g.horizontal.size * g.channels),
         ReadWindows<T>{{x.data<T>()}, {scratch.mutable_data<T>()}, g, first});
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
GradientCase padded_case(const CaseTensors& random) {
  return make_convolution_case(random, {2, 6, 5, 3}, {4, 3, 2, 3}, {.padding = {1, 3}, .dilation = {2, 1}});
}
GradientCase one_pixel_case(const CaseTensors& random) {
  return make_convolution_case(random, {2, 3, 5, 3}, {4, 1, 1, 3}, {});
}
REGISTER_GRADIENT_CASE("layer", "convolution", plain_case);
REGISTER_GRADIENT_CASE("layer", "convolution", strided_case);
REGISTER_GRADIENT_CASE("layer", "convolution", dilated_case);
REGISTER_GRADIENT_CASE("layer", "convolution", padded_case);
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
