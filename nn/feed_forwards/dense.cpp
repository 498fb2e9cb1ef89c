// Dense feed-forward, one operation for any activation F: unnormalized attention over its weights.
// Vaswani et al. 2017, arXiv:1706.03762.
//   z = x W_in^T + b_in,   a = F(z),   y = a W_out^T + b_out + r         x (R, C), W_in (S, C), W_out (C, S)
// With g = dy and the residual r:
//   da = g W_out,   dz = da F'(z),   dW_out = g^T a,   db_out = sum of the rows of g,   dr = g
//   dx = dz W_in,   dW_in = dz^T x,   db_in = sum of the rows of dz
//   dp = sum of da dF/dp(z)                            if F has learned parameters p
// Saved for backward: x and z, R (C + S) elements. Backward recomputes a in the epilogue of the
// product that makes da: one pass over a cached tile, and no memory for a in between. With p it
// stores da, because dp needs it.
#include "engine/autograd/autograd.h"
#include "engine/matmul/matmul.h"
#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/feed_forwards/base/conversions.h"
#include "nn/feed_forwards/base/hidden.h"
#include "nn/feed_forwards/base/pointwise.h"
#include "nn/formulas/epilogue.h"
#include "nn/layers/linear.h"

namespace orrery::nn {
namespace {

template <class T>
class Hidden final : public EpilogueFunction<T> {  // hidden = F(z) of the product z; or, given z, also dz = F'(z) da
 public:
  Hidden(const Activation& activation, const Tensor& hidden, const Tensor& z, const Tensor& p)
      : activation_(activation),
        tile_(activation.role<TileRole<T>>()),
        z_(z ? z.data<T>() : nullptr),
        p_(p ? p.data<T>() : nullptr),
        hidden_(hidden.mutable_data<T>()),
        d_ff_(hidden.size(-1)) {}
  void row(int, int64_t row, int64_t column, int64_t columns, T* c) const override {
    const int64_t offset = row * d_ff_ + column;
    if (z_)
      tile_.backward(z_ + offset, c, hidden_ + offset, c, columns);
    else
      tile_.values(c, hidden_ + offset, columns, p_);
  }
  void on_gpu(const cuda::Matmul<T, T>& product, int bf16_terms) const override {
    const EpilogueRole<T>& role = activation_.role<EpilogueRole<T>>();
    z_ ? role.multiply_backward(product, bf16_terms, z_, hidden_) : role.multiply(product, bf16_terms, p_, hidden_);
  }

 private:
  const Activation& activation_;
  const TileRole<T>& tile_;
  const T *z_, *p_;
  T* hidden_;
  int64_t d_ff_;
};

struct DenseFeedForward {
  static constexpr const char* name = "dense_feed_forward";
  static constexpr int inputs = 7;
  Activation activation;

  template <class T>
  Tensor forward_as(Saved& saved, const Tensor& x, const Tensor& input, const Tensor& input_bias, const Tensor& output,
                    const Tensor& output_bias, const Tensor& residual, const Tensor& p) const {
    const int64_t rows = x.shape().rows(), d_ff = input.size(0);
    const Tensor z = Tensor::empty_like(x, x.shape().with(-1, d_ff)), hidden = Tensor::empty_like(z);
    const Hidden<T> activate(activation, hidden, {}, p);
    multiply<T>(x.device(), {.m = rows, .n = d_ff, .k = x.size(-1), .transpose_b = true}, x.data<T>(), input.data<T>(),
                {z.mutable_data<T>()}, {.function = &activate, .bias = input_bias ? input_bias.data<T>() : nullptr});
    saved.save(x, input, z, output, p);
    return linear(hidden, output, output_bias, residual);
  }
  template <class T>
  Gradients<7> backward_as(const Saved& saved, const Tensor& dy) const {
    const Tensor &x = saved[0], &input = saved[1], &z = saved[2], &output = saved[3], &p = saved[4];
    const int64_t rows = x.shape().rows(), d_ff = input.size(0);
    const Tensor hidden = Tensor::empty_like(z), dz = Tensor::empty_like(z);
    Tensor dp;
    if (p) {
      const ElementwiseRole& role = activation.role<ElementwiseRole>();
      const Tensor da = matmul(dy, output);
      dp = Tensor::empty_like(p);
      role.forward(z, p, hidden), role.backward(z, p, da, dz), role.parameters_backward(z, p, da, dp);
    } else {
      const Hidden<T> epilogue(activation, hidden, z, {});
      multiply<T>(x.device(), {.m = rows, .n = d_ff, .k = output.size(0)}, dy.data<T>(), output.data<T>(),
                  {dz.mutable_data<T>()}, {.function = &epilogue});
    }
    const Tensor dx = saved.needs(0) ? matmul(dz, input) : Tensor();
    const auto [dinput, dinput_bias] = detail::weight_gradients(saved, 1, {dz}, x);
    const auto [doutput, doutput_bias] = detail::weight_gradients(saved, 3, {dy}, hidden);
    return {dx, dinput, dinput_bias, doutput, doutput_bias, saved.needs(5) ? dy : Tensor(), dp};
  }
};

Tensor reference(const Tensor& x, const Activation& activation, const Tensor& input, const Tensor& input_bias,
                 const Tensor& output, const Tensor& output_bias, const Tensor& p = {}) {
  return matmul(activation(matmul(x, input, {.b = true}) + input_bias, p), output, {.b = true}) + output_bias;
}

class Dense final : public SlotFeedForward {
 public:
  struct Settings {
    Spec activation = parse_spec("gelu_tanh");
    template <class V>
    void visit(V& v) {
      v("activation", activation, "activation F of the hidden units");
    }
  };
  static inline const Info info{.name = "dense",
                                .formula = "F(x W_in^T + b_in) W_out^T + b_out",
                                .source = "Vaswani et al. 2017, arXiv:1706.03762",
                                .parameters = "W_in N(0, 0.02^2), W_out N(0, 0.02^2 / (2 layers)), biases 0",
                                .saves = "x, z = x W_in^T + b_in",
                                .alias = "mlp",
                                .takes_activation = true};

  Dense(const Spec& spec, const FeedForwardOptions& options) : Dense(settings_from<Settings>(spec), options) {}
  Dense(const Settings& settings, const FeedForwardOptions& o)
      : function_(Activation(settings.activation), o.shared_activation),
        input_(o.width, o.d_ff, {.bias = o.bias, .weight = o.initial_weights.hidden(o.width, o.d_ff, o.layers)}),
        output_(o.d_ff, o.width,
                {.bias = o.bias, .weight = o.initial_weights.residual_output(o.d_ff, o.width, o.layers)}) {}

  Tensor forward_with_residual(const Tensor& x, const Tensor& residual, ForwardPass&) override {
    return hooked_dense(*this, x, function_,
                        {input_.weight.value, input_.bias.value, output_.weight.value, output_.bias.value}, residual);
  }
  void visit(Visitor& v) override {
    v("input", input_);
    function_.visit(v);
    v("output", output_);
  }

  SlotWeights slot_weights() const override {  // the values are the columns of W_out
    return {.key = as_slots(input_.weight.value),
            .value = as_slots(transpose(output_.weight.value)),
            .key_bias = input_.bias.value,
            .value_bias = output_.bias.value,
            .function = function_.activation(),
            .parameters = function_.parameters()};
  }
  void store(const SlotWeights& w) override {
    input_.weight.value.copy_from(as_matrix(w.key));
    output_.weight.value.copy_from(transpose(as_matrix(w.value)));
    if (w.parameters) function_.parameters().copy_from(w.parameters);
    if (w.key_bias) input_.bias.value.copy_from(w.key_bias);
    if (w.value_bias) output_.bias.value.copy_from(w.value_bias);
  }

 private:
  PointwiseFunction function_;
  Linear input_, output_;
};
REGISTER_FEED_FORWARD(Dense);

GradientCase case_of(const Activation& f, const CaseTensors& random, const Tensor& p = {}) {
  std::vector<GradientCase::Input> inputs = {{"x", random({2, 4, 5})},
                                             {"input", random({7, 5})},
                                             {"input_bias", random({7})},
                                             {"output", random({5, 7})},
                                             {"output_bias", random({5})},
                                             {"residual", random({2, 4, 5})}};
  if (p) inputs.push_back({"p", p});
  const auto last = [](const auto& in) { return in.size() > 6 ? in[6] : Tensor(); };
  return {inputs,
          [=](const auto& in) { return dense_feed_forward(in[0], f, in[1], in[2], in[3], in[4], in[5], last(in)); },
          [=](const auto& in) { return reference(in[0], f, in[1], in[2], in[3], in[4], last(in)) + in[5]; }};
}
GradientCase gradient_case(const CaseTensors& random) { return case_of(Activation("gelu_tanh"), random); }
REGISTER_GRADIENT_CASE("feed_forward", "dense", gradient_case);
GradientCase learned_case(const CaseTensors& random) {
  return case_of(Activation("xielu"), random, random({2}));
}
REGISTER_GRADIENT_CASE("feed_forward", "dense", learned_case);

}  // namespace

Tensor dense_feed_forward(const Tensor& x, const Activation& activation, const Tensor& input, const Tensor& input_bias,
                          const Tensor& output, const Tensor& output_bias, const Tensor& residual, const Tensor& p) {
  check_same_kind("dense_feed_forward", x, input);
  activation.check_parameters("dense_feed_forward", p);
  check(x.shape().rank() >= 1 && input.shape() == Shape{output.size(1), x.size(-1)}, "dense_feed_forward: x ",
        x.shape(), " does not fit weights ", input.shape(), " and ", output.shape(),
        "; they must be (d_ff, width) and (width, d_ff)");
  return record(DispatchedOperation<DenseFeedForward>{{activation}}, x, input, input_bias, output, output_bias,
                residual, activation.formula_parameters(p));
}

}  // namespace orrery::nn
