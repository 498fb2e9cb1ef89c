// The autograd operation around engine/attention, which has the formulas and derivatives. Saved for
// backward: the operands; for softmax the output and L, one number per query and head; with
// statistics also P and H. No (Tq, Tk) array exists.
#include "nn/attentions/base/fused.h"

#include <array>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "nn/formulas/attention_kernels.h"

namespace orrery::nn {
namespace {

constexpr int operands = 9;  // members of AttentionInputs, in its order
template <class Tensors>
AttentionInputs inputs_of(const Tensors& x) {
  return {x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8]};
}

struct Attention {
  static constexpr const char* name = "attention";
  AttentionOptions options;
  std::optional<Activation> function;

  AttentionWeighting weighting(Device device) const {
    if (!function) return {};
    const auto of = [&]<class A>() -> AttentionWeighting::For<A> {
      return {&function->role<TileRole<A>>(), device == Device::cuda ? &function->role<AttentionRole<A>>() : nullptr};
    };
    return {of.operator()<float>(), of.operator()<double>(), function->info().zero_below_zero};
  }
  Gradients<operands> differentiate(const Saved& saved, const AttentionOutput& y, const AttentionOutput& dy) const {
    Gradients<operands> d;
    for (int i = 0; i < operands; ++i)
      if (saved.needs(i)) d[static_cast<size_t>(i)] = Tensor::empty_like(saved[i]);
    attention_backward(inputs_of(saved), options, weighting(saved[0].device()), y, dy, inputs_of(d));
    return d;
  }

  template <class... X>
  Tensor forward(Saved& saved, const X&... x) const {
    const AttentionInputs inputs = {x...};
    const AttentionOutput y = attention_forward(inputs, options, weighting(inputs.query.device()));
    (saved.save(x), ...);
    if (!function) saved.save(y.output, y.log_sum);
    return y.output;
  }
  Gradients<operands> backward(const Saved& saved, const Tensor& dy) const {
    if (function) return differentiate(saved, {}, {.output = dy});
    return differentiate(saved, {.output = saved[operands], .log_sum = saved[operands + 1]}, {.output = dy});
  }
};

struct AttentionWithStatistics : Attention {
  static constexpr const char* name = "attention_with_statistics";
  template <class... X>
  std::array<Tensor, 5> forward(Saved& saved, const X&... x) const {
    const AttentionInputs inputs = {x...};
    const AttentionWeighting w = weighting(inputs.query.device());
    const AttentionOutput y = attention_statistics(inputs, options, w, attention_forward(inputs, options, w));
    (saved.save(x), ...);
    saved.save(y.output, y.log_sum, y.positive_sum, y.entropy);
    return {y.output, y.sum, y.entropy, y.zero_fraction, y.maximum};
  }
  Gradients<operands> backward(const Saved& saved, const std::array<Tensor, 5>& dy) const {
    return differentiate(saved,
                         {.output = saved[operands],
                          .log_sum = saved[operands + 1],
                          .positive_sum = saved[operands + 2],
                          .entropy = saved[operands + 3]},
                         {.output = dy[0], .sum = dy[1], .entropy = dy[2]});
  }
};

template <class Operation>
auto record_attention(const Operation& operation, const AttentionInputs& x) {
  return record(operation, x.query, x.key, x.value, x.slot_key, x.slot_value, x.relative_embedding, x.relative_bias,
                x.span, x.parameters);
}

}  // namespace

AttentionOutput attention(const AttentionInputs& given, const AttentionOptions& options,
                          const std::optional<Activation>& function, bool statistics) {
  AttentionInputs inputs = given;
  inputs.parameters = {};
  check_attention(inputs, options);
  const int64_t heads = given.query.size(2);
  if (function)
    function->check_parameters("attention", given.parameters, heads);
  else
    check(!given.parameters, "attention: parameters of F are given without F; give the function too");
  if (in_reference_mode()) return attention_reference(given, options, function, statistics);
  if (const Tensor p = given.parameters)
    inputs.parameters = broadcast_to(function->formula_parameters(p), Shape{heads, p.size(-1)})
                            .to(given.query.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32);
  if (!statistics) return {.output = record_attention(Attention{options, function}, inputs)};
  const auto [output, sum, entropy, zero_fraction, maximum] =
      record_attention(AttentionWithStatistics{{options, function}}, inputs);
  return {.output = output,
          .sum = sum,
          .entropy = entropy,
          .zero_fraction = zero_fraction.detach(),
          .maximum = maximum.detach()};
}

}  // namespace orrery::nn
