// 2-D convolution: a linear layer on a moving window. LeCun et al. 1989, Neural Computation 1;
// matrix product: Chellapilla et al. 2006; dilation: Yu and Koltun 2016, arXiv:1511.07122.
//   y[b, r, c, n] = bias[n] + sum over i, j, k of W[n, i, j, k] x[b, r s - p + i d, c s - p + j d, k]
// with stride s, padding p, dilation d (each per axis) and x = 0 beyond the image. X is the matrix
// of window elements, one row (h w C numbers) per window. W is used as (N, h w C), and Y and G = dY
// have one row per window:
//   Y = X W^T + bias,   dW = G^T X,   dbias = sum of the rows of G,   dX = G W
// dx[b, r', c'] sums the elements of dX that came from this pixel: for each tap (i, j), the element
// of window ((r' + p - i d) / s, (c' + p - j d) / s) if both are window indices. Every pixel
// gathers its own sum, so writes never conflict. For s = 1 this is a convolution of G with the
// flipped window (i' = h - 1 - i, j' = w - 1 - j):
//   dx[b, r', c', k] = sum over i', j', n of W[n, h-1-i', w-1-j', k] G[b, r' - p' + i' d, c' - p' + j' d, n],
//   p' = (h - 1) d - p
// so it is one matrix product with the windows of G, without dX. Saved for backward: x and W.
// Forward and backward build X for a few lines of windows at a time, so that it fits into a cache.
// On a CPU each core reads, multiplies and sums its own lines, because one group's products are too
// small to split. A window of one pixel with stride 1 and no padding is a linear layer.
#include "nn/vision/convolution.h"

#include <cmath>

#include "engine/autograd/autograd.h"
#include "engine/loops/loops.h"
#include "engine/matmul/matmul.h"
#include "engine/ops/ops.h"
#include "engine/system/parallel.h"
#include "engine/types/dispatch.h"
#include "nn/base/gradient_case.h"
#include "nn/layers/layer.h"
#include "nn/layers/linear.h"

namespace orrery::nn {
namespace {

// Elements of X at a time (at least one line): fits into a core's L2 cache, or keeps a GPU busy.
int64_t scratch_elements(Device device) { return device == Device::cpu ? 1 << 16 : 1 << 22; }

template <class T>
struct ReadWindows {  // row (line of windows, i): row i of each window in the line
  In<T> x;
  Out<T> windows;
  WindowGrid grid;
  int64_t first;  // line of the first row, counted over the batch
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const WindowAxis &down = grid.vertical, &across = grid.horizontal;
    const int64_t i = r % down.size, line = r / down.size, image = (first + line) / down.windows;
    const int64_t pixel_line = down.pixel((first + line) % down.windows, i);
    const bool is_inside = down.is_inside(pixel_line);
    const In<T> in = x.at(is_inside ? grid.element(image, pixel_line, 0) : 0);
    const int channels = static_cast<int>(grid.channels);
    for (int64_t window = 0; window < across.windows; ++window) {
      const Out<T> out = windows.at(((line * across.windows + window) * down.size + i) * row.n);
      const int64_t left = across.pixel(window, 0);
      if (!is_inside)
        row.each([&](int e) { out[e] = 0; });
      else if (across.dilation == 1 && left >= 0 && left + across.size <= across.pixels)
        row.each([&](int e) { out[e] = in[left * channels + e]; });
      else
        row.each([&](int e) {
          const int64_t pixel = left + e / channels * across.dilation;
          out[e] = across.is_inside(pixel) ? in[pixel * channels + e % channels] : Arithmetic<T>(0);
        });
    }
  }
};
template <class T>
struct FlipWindow {  // row (tap, n): W[n, h-1-i, w-1-j, :]
  In<T> weight;
  Out<T> flipped;
  int64_t taps, outputs;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const int64_t tap = r / outputs, n = r % outputs;
    const In<T> in = weight.at((n * taps + taps - 1 - tap) * row.n);
    const Out<T> out = flipped.at(r * row.n);
    row.each([&](int k) { out[k] = in[k]; });
  }
};
template <class T>
struct AddPartialSums {  // row n of dW: sums its partial sums in order
  In<T> partial_sums;
  Out<T> sum;
  int64_t count, outputs;
  bool accumulate;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const Out<T> out = sum.at(r * row.n);
    for (int64_t p = 0; p < count; ++p) {
      const In<T> in = partial_sums.at((p * outputs + r) * row.n);
      const bool add = accumulate || p > 0;
      row.each([&](int e) { out[e] = add ? out[e] + in[e] : in[e]; });
    }
  }
};
template <class T>
struct SumWindows {  // row r: pixel r of dx, the sum of its elements in dX
  In<T> windows;
  Out<T> dx;
  WindowGrid grid;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const Out<T> out = dx.at(r * row.n);
    row.each([&](int c) { out[c] = 0; });
    grid.each_window_over(grid.pixel(r), [&](int64_t tap, const WindowGrid::GridPosition& window) {
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
    in_groups(x.device(), grid, 1, [&](int64_t first, int64_t lines) {
      const Tensor windows = read_windows<T>(x, grid, first, lines);
      multiply<T>(x.device(), {.m = lines * line(), .n = outputs, .k = row_size(), .transpose_b = true},
                  windows.data<T>(), weight.data<T>(), {y.mutable_data<T>() + first * line() * outputs},
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
    const bool unit_stride = grid.vertical.stride == 1 && grid.horizontal.stride == 1;
    return unit_stride ? flipped_window_gradient<T>(weight, dy) : gathered_gradient<T>(weight, dy);
  }
  template <class T>
  Tensor flipped_window_gradient(const Tensor& weight, const Tensor& dy) const {
    using Sum = Arithmetic<T>;
    const auto flipped_axis = [](const WindowAxis& a) {
      return WindowAxis{a.windows, a.size, 1, (a.size - 1) * a.dilation - a.padding, a.dilation, a.pixels};
    };
    const WindowGrid flipped_grid{grid.batch, outputs, flipped_axis(grid.vertical), flipped_axis(grid.horizontal)};
    const Tensor flipped = Tensor::empty_like(weight, Shape{grid.taps() * outputs, grid.channels}),
                 dx = Tensor::empty_like(dy, x_shape(), dtype_of<Sum>);
    rows(dy.device(), grid.taps() * outputs, static_cast<int>(grid.channels),
         FlipWindow<T>{{weight.data<T>()}, {flipped.mutable_data<T>()}, grid.taps(), outputs});
    in_groups(dy.device(), flipped_grid, 1, [&](int64_t first, int64_t lines) {
      const int64_t pixels = grid.horizontal.pixels;
      const Tensor windows = read_windows<T>(dy, flipped_grid, first, lines);
      multiply<T>(dy.device(), {.m = lines * pixels, .n = grid.channels, .k = grid.taps() * outputs}, windows.data<T>(),
                  flipped.data<T>(), {dx.mutable_data<Sum>() + first * pixels * grid.channels});
    });
    return dx.to(dy.dtype());
  }
  template <class T>
  Tensor gathered_gradient(const Tensor& weight, const Tensor& dy) const {
    using Sum = Arithmetic<T>;  // sums over windows
    const Tensor dx = Tensor::empty_like(dy, x_shape(), dtype_of<Sum>);
    const int64_t lines_per_image = grid.vertical.windows;  // groups are whole images, with all windows of a pixel
    in_groups(dy.device(), grid, lines_per_image, [&](int64_t first, int64_t lines) {
      const Tensor windows = Tensor::empty(Shape{lines * line(), row_size()}, dtype_of<Sum>, dy.device());
      multiply<T>(dy.device(), {.m = lines * line(), .n = row_size(), .k = outputs},
                  dy.data<T>() + first * line() * outputs, weight.data<T>(), {windows.mutable_data<Sum>()});
      Sum* const to = dx.mutable_data<Sum>() + first / lines_per_image * grid.pixels() * grid.channels;
      rows(dy.device(), lines / lines_per_image * grid.pixels(), static_cast<int>(grid.channels),
           SumWindows<Sum>{{windows.data<Sum>()}, {to}, grid});
    });
    return dx.to(dy.dtype());
  }
  // Splits the lines into partial sums: enough for all cores, but small compared with X.
  template <class T>
  Tensor weight_gradient(const Saved& saved, const Tensor& x, const Tensor& dy) const {
    using Sum = Arithmetic<T>;  // sums over lines
    const Saved::GradientBuffer buffer = saved.gradient_buffer(1, weight_shape(), dtype_of<Sum>, dy.device());
    const int64_t size = outputs * row_size(), all = grid.batch * grid.vertical.windows;
    const int64_t step = lines_per_group(dy.device(), grid, 1), groups = (all + step - 1) / step;
    const int64_t max_splits =
        dy.device() == Device::cpu ? std::min<int64_t>({(1 << 20) / std::max<int64_t>(size, 1), groups, 32}) : 1;
    const int64_t splits = std::max<int64_t>(max_splits, 1);
    const Tensor sums = splits > 1 ? Tensor::empty(Shape{splits, size}, dtype_of<Sum>, dy.device()) : buffer.gradient;
    parallel_for(splits, 1, [&](int64_t begin, int64_t end) {
      for (int64_t split = begin; split < end; ++split) {
        const int64_t from = split * all / splits, to = (split + 1) * all / splits;
        for (int64_t first = from; first < to; first += step) {
          const int64_t lines = std::min(step, to - first);
          const Tensor windows = read_windows<T>(x, grid, first, lines);
          multiply<T>(dy.device(),
                      {.m = outputs,
                       .n = row_size(),
                       .k = lines * line(),
                       .transpose_a = true,
                       .accumulate = first > from || (splits == 1 && buffer.accumulate)},
                      dy.data<T>() + first * line() * outputs, windows.data<T>(),
                      {sums.mutable_data<Sum>() + split * size});
        }
      }
    });
    if (splits > 1)
      rows(dy.device(), outputs, static_cast<int>(row_size()),
           AddPartialSums<Sum>{
               {sums.data<Sum>()}, {buffer.gradient.template mutable_data<Sum>()}, splits, outputs, buffer.accumulate});
    return buffer.as(dy.dtype());
  }

  int64_t row_size() const { return grid.taps() * grid.channels; }  // elements in a row of X
  Shape x_shape() const { return {grid.batch, grid.vertical.pixels, grid.horizontal.pixels, grid.channels}; }
  Shape weight_shape() const { return {outputs, grid.vertical.size, grid.horizontal.size, grid.channels}; }

  // ---- windows of a grid, a few lines at a time
  int64_t line() const { return grid.horizontal.windows; }  // windows in a line
  static int64_t lines_per_group(Device device, const WindowGrid& g, int64_t unit) {
    const int64_t elements = unit * g.horizontal.windows * g.taps() * g.channels;
    return unit * std::max<int64_t>(scratch_elements(device) / std::max<int64_t>(elements, 1), 1);
  }
  // Calls f(first line, lines) for groups of whole units; lines are counted over the batch.
  template <class F>
  static void in_groups(Device device, const WindowGrid& g, int64_t unit, const F& f) {
    const int64_t lines = g.batch * g.vertical.windows, step = lines_per_group(device, g, unit);
    const auto group = [&](int64_t begin, int64_t end) { f(begin, end - begin); };
    if (device == Device::cpu) return parallel_for(lines, step, group);
    for (int64_t first = 0; first < lines; first += step) group(first, std::min(lines, first + step));
  }
  template <class T>
  static Tensor read_windows(const Tensor& x, const WindowGrid& g, int64_t first, int64_t lines) {
    const Tensor windows =
        Tensor::empty(Shape{lines * g.horizontal.windows, g.taps() * g.channels}, dtype_of<T>, x.device());
    rows(x.device(), lines * g.vertical.size, static_cast<int>(g.horizontal.size * g.channels),
         ReadWindows<T>{{x.data<T>()}, {windows.mutable_data<T>()}, g, first});
    return windows;
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
                                 .saves = "x"};
REGISTER_LAYER(convolution_layer);

bool add_cases() {  // plain, strided, dilated, padded, and of one pixel
  struct Case {
    Shape x, weight;
    WindowSteps steps;
  };
  for (const Case& c : {Case{{2, 5, 7, 3}, {4, 3, 3, 3}, {}},
                        Case{{2, 7, 6, 2}, {3, 3, 2, 2}, {.stride = {2, 3}, .padding = {1, 2}}},
                        Case{{1, 7, 9, 2}, {3, 2, 3, 2}, {.stride = {1, 2}, .padding = 3, .dilation = {3, 2}}},
                        Case{{2, 6, 5, 3}, {4, 3, 2, 3}, {.padding = {1, 3}, .dilation = {2, 1}}},
                        Case{{2, 3, 5, 3}, {4, 1, 1, 3}, {}}})
    add_gradient_case("layer", "convolution", [c](const CaseTensors& random) -> GradientCase {
      return {{{"x", random(c.x)}, {"weight", random(c.weight)}, {"bias", random(Shape{c.weight[0]})}},
              [c](const auto& in) { return convolution(in[0], in[1], in[2], c.steps); },
              [c](const auto& in) { return reference(in[0], in[1], in[2], c.steps); }};
    });
  return true;
}
const bool cases = add_cases();

}  // namespace

Tensor convolution(const Tensor& x, const Tensor& weight, const Tensor& bias, const WindowSteps& steps) {
  check_same_kind("convolution", x, weight);
  check(weight.shape().rank() == 4, "convolution: the weight ", weight.shape(),
        " must be (outputs, height, width, channels)");
  const WindowGrid grid = window_grid("convolution", x.shape(), {weight.size(1), weight.size(2)}, steps);
  check(grid.channels == weight.size(3), "convolution: the input ", x.shape(), " has ", grid.channels,
        " channels, but the weight ", weight.shape(), " has ", weight.size(3), "; the last axes must be equal");
  check(!bias || bias.shape() == Shape{weight.size(0)}, "convolution: bias of shape ", bias ? bias.shape() : Shape(),
        " does not fit weight ", weight.shape(), "; it must be ", Shape{weight.size(0)});
  if (grid.taps() == 1 && steps.stride == Pixels(1) && steps.padding == Pixels(0))
    return linear(x, weight.reshape(Shape{weight.size(0), weight.size(3)}), bias);
  return record(ConvolutionOperation{grid, weight.size(0)}, x, weight, bias);
}

Convolution::Convolution(int64_t inputs, int64_t outputs, Pixels size, const Options& options) : steps_(options.steps) {
  const Shape window{size.vertical, size.horizontal, inputs};
  const Initialization default_init = uniform(1 / std::sqrt(static_cast<double>(window.numel())));
  weight = Parameter(Shape{outputs, size.vertical, size.horizontal, inputs}, options.weight.value_or(default_init));
  if (options.bias) bias = Parameter(Shape{outputs}, options.weight ? constant(0) : default_init);
}
Tensor Convolution::forward(const Tensor& x, ForwardPass&) { return convolution(x, weight.value, bias.value, steps_); }
void Convolution::visit(Visitor& v) {
  v("weight", weight);
  v("bias", bias);
}

}  // namespace orrery::nn
