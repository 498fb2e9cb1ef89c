// Gradient cases of whole modules.
#include <algorithm>
#include <cmath>

#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/base/reference_mode.h"

namespace orrery::nn {
namespace {

// Returns random values near the initial ones, strictly inside the parameter's bounds.
Tensor random_state(const Parameter& p, const CaseTensors& random) {
  std::vector<double> x = random(p.value.shape()).to_vector();
  const bool bounded = std::isfinite(p.min_value) && std::isfinite(p.max_value);
  // Wide matrices vary less, so that their outputs are as small as those of narrow ones.
  const double spread = x.empty() || p.value.shape().rank() < 2
                            ? 0.4
                            : std::min(0.4, 1.6 / std::sqrt(static_cast<double>(p.value.size(-1))));
  const double center = p.initialization.kind == Initialization::Kind::constant ? p.initialization.a : 0;
  for (double& e : x) {
    if (bounded)
      e = p.min_value + (p.max_value - p.min_value) * (0.5 + 0.4 * std::tanh(e));
    else if (std::isfinite(p.min_value))
      e = p.min_value + 0.2 + std::abs(center + 0.3 * e);
    else
      e = center + spread * e;
  }
  return Tensor::from(p.value.shape(), x, Dtype::f64);
}

// Returns y and the losses in one row, so that all are differentiated; only y without losses.
Tensor with_losses(const Tensor& y, const ForwardPass& pass) {
  check(pass.losses.size() == pass.requested_losses.size(), "gradient case: ", pass.requested_losses.size(),
        " losses are requested, but the module returned ", pass.losses.size());
  if (pass.losses.empty()) return y;
  std::vector<Tensor> values = {y.reshape(Shape{y.numel()}).to(pass.losses[0].value.dtype())};  // f32 if y is bf16
  for (const ForwardPass::Loss& loss : pass.losses) values.push_back(loss.value.reshape(Shape{1}));
  return concatenate(values, 0);
}

}  // namespace

GradientCase module_case(const ModuleCase& settings, const CaseTensors& random) {
  Module& module = *settings.module;
  name_paths(module);
  convert(module, Dtype::f64);
  GradientCase test{.inputs = {{"x", random(settings.input)}},
                    .fast = {},
                    .reference = {},
                    .finite_differences = settings.finite_differences};
  const std::vector<NamedParameter> parameters = parameters_of(module);
  for (const NamedParameter& p : parameters) test.inputs.push_back({p.path, random_state(*p.parameter, random)});
  test.fast = [root = settings.module, parameters, prepare = settings.prepare](const std::vector<Tensor>& in) {
    for (size_t i = 0; i < parameters.size(); ++i) parameters[i].parameter->value = in[i + 1];
    const Device device = in[0].device();
    for (const auto& [path, buffer] : buffers_of(*root)) *buffer = buffer->to(device);
    ForwardPass pass;
    if (prepare) prepare(pass);
    for (Tensor* t :
         {&pass.lengths, &pass.document_ids, &pass.encoder_output, &pass.encoder_lengths, &pass.encoder_document_ids})
      if (*t) *t = t->to(device);
    if (pass.encoder_output) pass.encoder_output = pass.encoder_output.to(in[0].dtype());
    return with_losses((*root)(in[0], pass), pass);
  };
  if (settings.compare_reference_mode)
    test.reference = [fast = test.fast](const std::vector<Tensor>& in) {
      const ReferenceMode guard;
      return fast(in);
    };
  return test;
}

}  // namespace orrery::nn
