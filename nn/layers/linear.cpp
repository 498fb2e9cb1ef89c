// Linear layer.
//   y = x W^T + b + r          x (R, C), W (N, C), b (N), residual r (R, N)
//   dx = dy W,   dW = dy^T x,   db = sum of the rows of dy,   dr = dy
// Saved for backward: x and W, both alive anyway. The product's epilogue adds bias and residual to
// a tile of y in the cache. On a GPU the product that computes dW in bf16 also computes db.
#include "nn/layers/linear.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/autograd/autograd.h"
#include "engine/loops/loops.h"
#include "engine/matmul/matmul.h"
#include "engine/ops/ops.h"
#include "engine/types/dispatch.h"
#include "nn/base/gradient_case.h"
#include "nn/layers/layer.h"

namespace orrery::nn {
namespace {

template <class T>
struct Element {
  In<T> x;
  HOST_DEVICE Arithmetic<T> operator()(int64_t i, int64_t) const { return x[i]; }
};
template <class T>
struct ElementAndPrevious {  // adds the rows to the previous sum, which is the block's last row
  In<T> x;
  In<Arithmetic<T>> previous;
  int64_t rows, columns;
  HOST_DEVICE Arithmetic<T> operator()(int64_t i, int64_t row) const {
    return row < rows ? x[i] : previous[i - rows * columns];
  }
};

void check_operands(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_same_kind("linear", x, weight);
  check(x.shape().rank() >= 1 && weight.shape().rank() == 2 && x.size(-1) == weight.size(1), "linear: input ",
        x.shape(), " does not fit weight ", weight.shape(), "; the last axis must be ", weight.size(-1));
  check(!bias || bias.shape() == Shape{weight.size(0)}, "linear: bias of shape ", bias ? bias.shape() : Shape(),
        " does not fit weight ", weight.shape(), "; it must be ", Shape{weight.size(0)});
}

// Returns the gradients of x, W and b, inputs 0 to 2, from the saved x and W.
Gradients<3> linear_gradients(const Saved& saved, const detail::SideBySide& dy) {
  const UnchangedOperands both_products_read_dy;
  const Tensor dx = saved.needs(0) ? detail::input_gradient(dy, saved[1]) : Tensor();
  const auto [dweight, dbias] = detail::weight_gradients(saved, 1, dy, saved[0]);
  return {dx, dweight, dbias};
}

struct LinearOperation {
  static constexpr const char* name = "linear";

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight, const Tensor& bias,
                 const Tensor& residual) const {
    saved.save(saved.needs(1) ? x : Tensor(), saved.needs(0) ? weight : Tensor());
    return dispatch(x.dtype(), name, [&]<class T>() { return product<T>(x, weight, bias, residual); });
  }
  Gradients<4> backward(const Saved& saved, const Tensor& dy) const {
    const auto [dx, dweight, dbias] = linear_gradients(saved, {dy});
    return {dx, dweight, dbias, saved.needs(3) ? dy : Tensor()};
  }
  template <class T>
  static Tensor product(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual) {
    const int64_t n = weight.size(0);
    const Tensor y = Tensor::empty_like(x, x.shape().with(-1, n));
    multiply<T>(x.device(), {.m = x.shape().rows(), .n = n, .k = x.size(-1), .transpose_b = true}, x.data<T>(),
                weight.data<T>(), {y.mutable_data<T>()},
                {.bias = bias ? bias.data<T>() : nullptr, .residual = residual ? residual.data<T>() : nullptr});
    return y;
  }
};

// y_i = x W_i^T + b_i for consecutive groups of rows W_i:  dx = sum dy_i W_i,  dW_i = dy_i^T x.
// A CPU writes the outputs in place. On a GPU the product of one output leaves half of it idle, so
// backward computes the products of linear, which in bf16 read the outputs' gradients in place.
struct LinearSplit {
  static constexpr const char* name = "linear_split";
  std::vector<int64_t> sizes;

  std::vector<Tensor> forward(Saved& saved, const Tensor& x, const Tensor& weight, const Tensor& bias) const {
    saved.save(saved.needs(1) ? x : Tensor(), weight);
    return dispatch(x.dtype(), name, [&]<class T>() { return products<T>(x, weight, bias); });
  }
  template <class T>
  std::vector<Tensor> products(const Tensor& x, const Tensor& weight, const Tensor& bias) const {
    std::vector<Tensor> y;
    Product p{.m = x.shape().rows(), .n = weight.size(0), .k = x.size(-1), .transpose_b = true};
    const Epilogue<T> add{.bias = bias ? bias.data<T>() : nullptr};
    T* c[4] = {};
    for (size_t i = 0; i < sizes.size(); ++i) {
      y.push_back(Tensor::empty_like(x, x.shape().with(-1, sizes[i])));
      c[i] = y[i].template mutable_data<T>(), p.output_columns[i] = sizes[i];
    }
    const T *const from = x.data<T>(), *const w = weight.data<T>();
    if (sizes.size() == 2) multiply<T>(x.device(), p, from, w, {c[0], c[1]}, add);
    if (sizes.size() == 3) multiply<T>(x.device(), p, from, w, {c[0], c[1], c[2]}, add);
    if (sizes.size() == 4) multiply<T>(x.device(), p, from, w, {c[0], c[1], c[2], c[3]}, add);
    return y;
  }
  Gradients<3> backward(const Saved& saved, std::vector<Tensor> dy) const {
    const Tensor& used = *std::find_if(dy.begin(), dy.end(), [](const Tensor& output) { return output.defined(); });
    for (size_t i = 0; i < sizes.size(); ++i)
      if (!dy[i]) dy[i] = Tensor::zeros_like(used, used.shape().with(-1, sizes[i]));
    if (used.device() == Device::cuda) return linear_gradients(saved, detail::side_by_side(dy));
    return dispatch(used.dtype(), name, [&]<class T>() { return gradients_by_output<T>(saved, dy); });
  }
  template <class T>
  Gradients<3> gradients_by_output(const Saved& saved, const std::vector<Tensor>& dy) const {
    using Sum = Arithmetic<T>;  // sums over the outputs
    const Tensor &x = saved[0], &weight = saved[1];
    const int64_t rows = dy[0].shape().rows();
    Tensor dx;
    if (saved.needs(0)) dx = Tensor::empty_like(dy[0], dy[0].shape().with(-1, weight.size(1)), dtype_of<Sum>);
    Saved::GradientBuffer dw{{}, false};
    if (saved.needs(1)) dw = saved.gradient_buffer(1, weight.shape(), dtype_of<Sum>, weight.device());
    int64_t first = 0;
    for (size_t i = 0; i < sizes.size(); first += sizes[i], ++i) {
      const T* const g = dy[i].data<T>();
      if (dx)
        multiply<T>(Device::cpu, {.m = rows, .n = weight.size(1), .k = sizes[i], .accumulate = i > 0}, g,
                    weight.data<T>() + first * weight.size(1), {dx.mutable_data<Sum>()});
      if (dw.gradient)
        multiply<T>(Device::cpu,
                    {.m = sizes[i], .n = x.size(-1), .k = rows, .transpose_a = true, .accumulate = dw.accumulate}, g,
                    x.data<T>(), {dw.gradient.template mutable_data<Sum>() + first * x.size(-1)});
    }
    return {dx ? dx.to(dy[0].dtype()) : Tensor(), dw.gradient ? dw.as(dy[0].dtype()) : Tensor(),
            saved.needs(2) ? detail::bias_gradient(saved, 2, concatenate(dy, -1)) : Tensor()};
  }
};

constexpr Info linear_layer{.name = "linear",
                            .formula = "x W^T + b",
                            .source = "Rosenblatt 1958",
                            .parameters = "W N(0, 0.02^2), b 0",
                            .saves = "x"};
REGISTER_LAYER(linear_layer);
constexpr Info linear_split_layer{.name = "linear_split",
                                  .formula = "x W^T + b, split into several outputs: queries, keys and values",
                                  .source = "as linear",
                                  .parameters = "as linear",
                                  .saves = "x"};
REGISTER_LAYER(linear_split_layer);

GradientCase linear_case(const CaseTensors& random) {
  return {
      {{"x", random({2, 3, 5})}, {"weight", random({4, 5})}, {"bias", random({4})}, {"residual", random({2, 3, 4})}},
      [](const auto& in) { return linear(in[0], in[1], in[2], in[3]); },
      [](const auto& in) { return matmul(in[0], in[1], {.b = true}) + in[2] + in[3]; }};
}
REGISTER_GRADIENT_CASE("layer", "linear", linear_case);

GradientCase split_case(const CaseTensors& random) {
  return {{{"x", random({2, 3, 5})}, {"weight", random({7, 5})}, {"bias", random({7})}},
          [](const auto& in) {
            return concatenate(linear_split(in[0], in[1], in[2], {4, 2, 1}), -1);
          },
          [](const auto& in) { return matmul(in[0], in[1], {.b = true}) + in[2]; }};
}
REGISTER_GRADIENT_CASE("layer", "linear_split", split_case);

}  // namespace

namespace detail {

Tensor bias_gradient(const Saved& saved, int input, const Tensor& g) {
  if (!saved.needs(input)) return {};
  const int64_t n = g.size(-1), rows = g.shape().rows();
  return dispatch(g.dtype(), "linear", [&]<class T>() {
    using Sum = Arithmetic<T>;
    const Saved::GradientBuffer buffer = saved.gradient_buffer(input, Shape{n}, dtype_of<Sum>, g.device());
    Sum* const out = buffer.gradient.template mutable_data<Sum>();
    if (buffer.accumulate)
      reduce(g.device(), 1, rows + 1, n, ElementAndPrevious<T>{{g.data<T>()}, {out}, rows, n}, out);
    else
      reduce(g.device(), 1, rows, n, Element<T>{{g.data<T>()}}, out);
    return buffer.as(g.dtype());
  });
}

SideBySide side_by_side(const SideBySide& g) {
  const bool in_place = g[0].device() == Device::cuda && g[0].dtype() == Dtype::bf16 &&
                        std::all_of(g.begin(), g.end(), [](const Tensor& part) { return part.size(-1) > 0; });
  return in_place || g.size() == 1 ? g : SideBySide{concatenate(g, -1)};
}

namespace {
// Sets the columns of `p` and returns the pointers.
template <class T>
std::array<const T*, 4> matrices(const SideBySide& g, Product& p) {
  std::array<const T*, 4> data = {};
  for (size_t i = 0; i < g.size(); ++i) data[i] = g[i].data<T>(), p.a_columns[i] = g.size() > 1 ? g[i].size(-1) : 0;
  return data;
}
}  // namespace

Tensor input_gradient(const SideBySide& g, const Tensor& weight) {
  if (g.size() == 1) return matmul(g[0], weight);
  const Tensor dx = Tensor::empty_like(g[0], g[0].shape().with(-1, weight.size(1)));
  dispatch(dx.dtype(), "linear", [&]<class T>() {
    Product p{.m = dx.shape().rows(), .n = weight.size(1), .k = weight.size(0)};
    const std::array<const T*, 4> a = matrices<T>(g, p);
    multiply<T>(dx.device(), p, a, weight.data<T>(), {dx.mutable_data<T>()});
  });
  return dx;
}

Gradients<2> weight_gradients(const Saved& saved, int input, const SideBySide& g, const Tensor& x) {
  const Dtype dtype = g[0].dtype();
  const Device device = g[0].device();
  const auto separate_bias = [&] {
    return saved.needs(input + 1) ? bias_gradient(saved, input + 1, g.size() == 1 ? g[0] : concatenate(g, -1))
                                  : Tensor();
  };
  if (!saved.needs(input)) return {Tensor(), separate_bias()};
  int64_t n = 0;
  for (const Tensor& part : g) n += part.size(-1);
  const int64_t rows = x.shape().rows(), c = x.size(-1);
  return dispatch(dtype, "linear", [&]<class T>() -> Gradients<2> {
    using Sum = Arithmetic<T>;
    // Tensor core products also sum g for the bias; other products leave that to a separate loop.
    const bool fused_bias = std::is_same_v<T, bf16> && device == Device::cuda && saved.needs(input + 1) && c > 0;
    const Saved::GradientBuffer buffer = saved.gradient_buffer(input, Shape{n, c}, dtype_of<Sum>, device);
    Saved::GradientBuffer bias_buffer{{}, false};
    Epilogue<Sum> sums;
    if (fused_bias) {
      bias_buffer = saved.gradient_buffer(input + 1, Shape{n}, dtype_of<Sum>, device);
      sums.row_sums = bias_buffer.gradient.template mutable_data<Sum>(),
      sums.accumulate_row_sums = bias_buffer.accumulate;
    }
    sums.may_wait = buffer.is_leaf_buffer && (!fused_bias || bias_buffer.is_leaf_buffer);
    Product p{.m = n, .n = c, .k = rows, .transpose_a = true, .accumulate = buffer.accumulate};
    const std::array<const T*, 4> a = matrices<T>(g, p);
    multiply<T>(device, p, a, x.data<T>(), {buffer.gradient.template mutable_data<Sum>()}, sums);
    return {buffer.as(dtype), fused_bias ? bias_buffer.as(dtype) : separate_bias()};
  });
}

}  // namespace detail

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual) {
  check_operands(x, weight, bias);
  check(!residual || residual.shape() == x.shape().with(-1, weight.size(0)), "linear: a residual of shape ",
        residual ? residual.shape() : Shape(), " must have the result's, ", x.shape().with(-1, weight.size(0)));
  return record(LinearOperation{}, x, weight, bias, residual);
}
std::vector<Tensor> linear_split(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                 const std::vector<int64_t>& sizes) {
  check_operands(x, weight, bias);
  int64_t total = 0;
  for (const int64_t size : sizes) total += size;
  check(sizes.size() >= 2 && sizes.size() <= 4 && total == weight.size(0), "linear_split: ", sizes.size(),
        " sizes with the sum ", total, " do not fit weight ", weight.shape(), "; give 2 to 4 sizes of its rows");
  return record(LinearSplit{sizes}, x, weight, bias);
}

Linear::Linear(int64_t inputs, int64_t outputs, const Options& options)
    : weight(Shape{outputs, inputs}, options.weight.value_or(uniform(1 / std::sqrt(static_cast<double>(inputs))))) {
  if (options.bias)
    bias =
        Parameter(Shape{outputs}, options.weight ? constant(0) : uniform(1 / std::sqrt(static_cast<double>(inputs))));
  weight.packed_rows = bias.packed_rows = options.packed_rows;
}
Tensor Linear::forward(const Tensor& x, ForwardPass&) { return linear(x, weight.value, bias.value); }
void Linear::visit(Visitor& v) {
  v("weight", weight);
  v("bias", bias);
}

}  // namespace orrery::nn
