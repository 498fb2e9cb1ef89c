// Gated feed-forward, the family of gated linear units, one operation for any activation F: F = sigmoid is GLU, relu
// ReGLU, gelu GEGLU, silu SwiGLU, identity the bilinear form.  Shazeer 2020, arXiv:2002.05202.
//   z = x W^T + b = (g | u),   h = F(g) u,   y = h W_out^T + b_out + r     x (R, C), W (2 S, C): W_gate above W_up
// With e = dy and the residual r, by the product rule:
//   dh = e W_out,   dg = F'(g) u dh,   du = F(g) dh,   dz = (dg | du)
//   dW_out = e^T h,   db_out = sum of the rows of e,   dr = e
//   dx = dz W,   dW = dz^T x,   db = sum of the rows of dz
// The gate and the linear part are one product with 2 S columns, and dx and dW one product each.
// Saved for backward: x and z, R (C + 2 S) elements. Backward recomputes h, with dg and du, in the
// epilogue of the product that makes dh.
// At initialization g and u are independent, both N(0, v): E h^2 = v E F(g)^2.
// Conventions: S is the block's d_ff. two_thirds=yes applies the paper's factor 2/3, rounded to the
// nearest integer, so that three matrices have the parameter count of a dense layer's two. Biases,
// which the paper omits, follow the block's setting.
#include <algorithm>
#include <type_traits>

#include "engine/matmul/matmul.h"
#include "engine/ops/ops.h"
#include "engine/system/parallel.h"
#include "nn/base/gradient_case.h"
#include "nn/diagnostics/predictions.h"
#include "nn/feed_forwards/base/hidden.h"
#include "nn/feed_forwards/base/pointwise.h"
#include "nn/layers/linear.h"

namespace orrery::nn {
namespace {

// Returns true if the loops below run on the rows of z in place: on a CPU, with T the arithmetic
// type. For bf16 and on a GPU, the halves of z are copied and use the activation's own kernels.
template <class T>
bool is_fused(const Tensor& z) {
  return z.device() == Device::cpu && std::is_same_v<T, Arithmetic<T>>;
}

// Returns F(g) u for each row of z.
template <class T>
Tensor gated(const Activation& activation, const Tensor& z) {
  if (!is_fused<T>(z)) {
    const std::vector<Tensor> halves = split(z, 2, -1);
    return activation.gate(halves[0], halves[1]);
  }
  using A = Arithmetic<T>;
  constexpr int64_t chunk_elements = 16384;
  const int64_t rows = z.shape().rows(), d_ff = z.size(-1) / 2;
  const Tensor hidden = Tensor::empty_like(z, z.shape().with(-1, d_ff));
  const TileRole<A>& tile = activation.role<TileRole<A>>();
  const A* const from = z.data<A>();
  A* const to = hidden.mutable_data<A>();
  parallel_for(rows, std::max<int64_t>(1, chunk_elements / d_ff), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const A *const g = from + 2 * d_ff * r, *const u = g + d_ff;
      A* const out = to + d_ff * r;
      tile.values(g, out, d_ff);
      for (int64_t i = 0; i < d_ff; ++i) out[i] *= u[i];
    }
  });
  return hidden;
}

template <class T>
class HiddenGradients final : public EpilogueFunction<T> {  // writes dz, overwrites dh with hidden
 public:
  HiddenGradients(const Activation& activation, const Tensor& z, const Tensor& dz)
      : tile_(activation.role<TileRole<T>>()), z_(z.data<T>()), dz_(dz.mutable_data<T>()), d_ff_(z.size(-1) / 2) {}
  void row(int, int64_t row, int64_t column, int64_t columns, T* dh) const override {
    const int64_t offset = 2 * d_ff_ * row + column;
    const T *const g = z_ + offset, *const u = g + d_ff_;
    T *const dg = dz_ + offset, *const du = dg + d_ff_;
    for (int64_t i = 0; i < columns; ++i) dg[i] = u[i] * dh[i];
    tile_.backward(g, dg, du, dg, columns);  // du receives F(g), which the loop below reads
    for (int64_t i = 0; i < columns; ++i) {
      const T f = du[i];
      du[i] = f * dh[i];
      dh[i] = f * u[i];
    }
  }

 private:
  const TileRole<T>& tile_;
  const T* z_;
  T* dz_;
  int64_t d_ff_;
};

// Returns dz = (dg | du) from z and dh.
detail::SideBySide gate_gradients(const Activation& activation, const Tensor& z, const Tensor& dh) {
  const std::vector<Tensor> halves = split(z, 2, -1);
  const Tensor dg = Tensor::empty_like(dh), du = Tensor::empty_like(dh);
  activation.role<ElementwiseRole>().gate_backward(halves[0], halves[1], dh, dg, du);
  return detail::side_by_side({dg, du});
}

struct GatedFeedForward {
  static constexpr const char* name = "gated_feed_forward";
  static constexpr int inputs = 6;
  Activation activation;

  template <class T>
  Tensor forward_as(Saved& saved, const Tensor& x, const Tensor& input, const Tensor& input_bias, const Tensor& output,
                    const Tensor& output_bias, const Tensor& residual) const {
    const Tensor z = linear(x, input, input_bias);
    saved.save(x, input, z, output);
    return linear(gated<T>(activation, z), output, output_bias, residual);
  }
  template <class T>
  Gradients<6> backward_as(const Saved& saved, const Tensor& dy) const {
    const Tensor &x = saved[0], &input = saved[1], &z = saved[2], &output = saved[3];
    const int64_t rows = x.shape().rows(), d_ff = output.size(1);
    Tensor hidden;
    detail::SideBySide dz{Tensor()};
    if (!is_fused<T>(z)) {
      hidden = gated<T>(activation, z), dz = gate_gradients(activation, z, matmul(dy, output));
    } else {
      using A = Arithmetic<T>;
      hidden = Tensor::empty_like(z, z.shape().with(-1, d_ff)), dz[0] = Tensor::empty_like(z);
      const HiddenGradients<A> epilogue(activation, z, dz[0]);
      multiply<A>(x.device(), {.m = rows, .n = d_ff, .k = output.size(0)}, dy.data<A>(), output.data<A>(),
                  {hidden.mutable_data<A>()}, {.function = &epilogue});
    }
    const UnchangedOperands both_products_read_dz;
    const Tensor dx = saved.needs(0) ? detail::input_gradient(dz, input) : Tensor();
    const auto [dinput, dinput_bias] = detail::weight_gradients(saved, 1, dz, x);
    const auto [doutput, doutput_bias] = detail::weight_gradients(saved, 3, {dy}, hidden);
    return {dx, dinput, dinput_bias, doutput, doutput_bias, saved.needs(5) ? dy : Tensor()};
  }
};

Tensor reference(const Tensor& x, const Activation& activation, const Tensor& input, const Tensor& input_bias,
                 const Tensor& output, const Tensor& output_bias) {
  const std::vector<Tensor> z = split(matmul(x, input, {.b = true}) + input_bias, 2, -1);
  return matmul(activation(z[0]) * z[1], output, {.b = true}) + output_bias;
}

class Gated final : public Sublayer {
 public:
  struct Settings {
    Spec activation = parse_spec("silu");
    bool two_thirds = false;
    template <class V>
    void visit(V& v) {
      v("activation", activation, "activation F of the gate");
      v("two_thirds", two_thirds, "use 2/3 of d_ff hidden units, which gives as many parameters as a dense layer");
    }
  };
  static inline const Info info{.name = "gated",
                                .formula = "(F(x W_gate^T + b) (x W_up^T + c)) W_out^T + b_out",
                                .source = "Shazeer 2020, arXiv:2002.05202",
                                .parameters = "W_gate, W_up N(0, 0.02^2), W_out N(0, 0.02^2 / (2 layers)), biases 0",
                                .saves = "x, x W_gate^T + b, x W_up^T + c",
                                .alias = "glu",
                                .variants = "swiglu=silu, geglu=gelu, reglu=relu"};

  Gated(const Spec& spec, const FeedForwardOptions& options) : Gated(settings_from<Settings>(spec), options) {}
  Gated(const Settings& settings, const FeedForwardOptions& o)
      : function_(Activation(settings.activation), o.shared_activation),
        d_ff_(settings.two_thirds ? std::max<int64_t>(1, sum_of_sizes("gated: d_ff", {o.d_ff, o.d_ff, 1}) / 3)
                                  : o.d_ff),
        input_(o.width, sum_of_sizes("gated: 2 d_ff", {d_ff_, d_ff_}),
               {.bias = o.bias,
                .weight = o.initial_weights.hidden(o.width, d_ff_, o.layers),
                .packed_rows = {d_ff_, d_ff_}}),
        output_(d_ff_, o.width,
                {.bias = o.bias, .weight = o.initial_weights.residual_output(d_ff_, o.width, o.layers)}) {}

  Tensor forward_with_residual(const Tensor& x, const Tensor& residual, ForwardPass&) override {
    const auto halves = [&] { return linear_split(x, input_.weight.value, input_.bias.value, {d_ff_, d_ff_}); };
    const Tensor hidden = hooked_hidden(
        path(), [&] { return halves()[0]; }, [&](const Tensor& z) { return function_(z) * halves()[1]; });
    if (hidden) return linear(hidden, output_.weight.value, output_.bias.value, residual);
    if (!function_.has_parameters())
      return gated_feed_forward(x, function_.activation(), input_.weight.value, input_.bias.value, output_.weight.value,
                                output_.bias.value, residual);
    const std::vector<Tensor> z = halves();
    return linear(function_.gate(z[0], z[1]), output_.weight.value, output_.bias.value, residual);
  }
  void visit(Visitor& v) override {
    v("input", input_);
    function_.visit(v);
    v("output", output_);
  }
  std::vector<Prediction> predicted(const InputStats& stats) const {
    const double square =
        function_.mean_over_heads([&](const auto& f) { return mean_square(stats.mean_square, f); });
    return {{ratio::hidden, square, "E[F(g)^2]", stats.mean_square}};
  }

 private:
  PointwiseFunction function_;
  int64_t d_ff_;
  Linear input_, output_;
};
REGISTER_FEED_FORWARD(Gated);
REGISTER_PREDICTION(Gated);

GradientCase gradient_case(const CaseTensors& random) {
  const Activation silu("silu");
  return {{{"x", random({2, 3, 5})},
           {"input", random({14, 5})},
           {"input_bias", random({14})},
           {"output", random({5, 7})},
           {"output_bias", random({5})},
           {"residual", random({2, 3, 5})}},
          [silu](const auto& in) { return gated_feed_forward(in[0], silu, in[1], in[2], in[3], in[4], in[5]); },
          [silu](const auto& in) { return reference(in[0], silu, in[1], in[2], in[3], in[4]) + in[5]; }};
}
REGISTER_GRADIENT_CASE("feed_forward", "gated", gradient_case);

}  // namespace

Tensor gated_feed_forward(const Tensor& x, const Activation& activation, const Tensor& input, const Tensor& input_bias,
                          const Tensor& output, const Tensor& output_bias, const Tensor& residual) {
  check_same_kind("gated_feed_forward", x, input);
  check(x.shape().rank() >= 1 && output.shape().rank() == 2 && input.shape() == Shape{2 * output.size(1), x.size(-1)},
        "gated_feed_forward: x ", x.shape(), " does not fit weights ", input.shape(), " and ", output.shape(),
        "; they must be (2 d_ff, width) and (width, d_ff)");
  return record(DispatchedOperation<GatedFeedForward>{{activation}}, x, input, input_bias, output, output_bias,
                residual);
}

}  // namespace orrery::nn
