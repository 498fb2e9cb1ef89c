#include "nn/activations/base/activation.h"

#include <algorithm>
#include <cmath>

#include "engine/autograd/autograd.h"
#include "engine/base/scalar.h"
#include "engine/ops/ops.h"

namespace orrery::nn {
namespace {

// The constants of an activation as settings, which reads and checks them like any others.
std::vector<Setting> settings_of_constants(const ActivationInfo& info, std::vector<double>& constants) {
  std::vector<Setting> settings;
  for (size_t i = 0; i < constants.size(); ++i)
    settings.push_back({std::string(info.constants[i].name), {}, &constants[i], "", info.constants[i].range});
  return settings;
}
std::vector<double> read_constants(const ActivationInfo& info, Spec spec) {
  std::vector<double> constants;
  for (const ActivationConstant& constant : info.constants) constants.push_back(constant.value);
  const std::vector<Setting> settings = settings_of_constants(info, constants);
  spec.name = info.name;  // an alias makes errors harder to follow
  read_settings(spec, settings);
  return constants;
}
std::string print_spec(const ActivationInfo& info, const std::vector<double>& constants) {
  Spec spec{std::string(info.name), {}};
  for (size_t i = 0; i < constants.size(); ++i)
    if (constants[i] != info.constants[i].value)
      spec.items.push_back({std::string(info.constants[i].name), {print_number(constants[i]), {}}});
  return print(spec);
}

struct Activate {
  static constexpr const char* name = "activation";
  Activation activation;

  Tensor forward(Saved& saved, const Tensor& x) const {
    const Tensor y = Tensor::empty_like(x);
    activation.kernels().forward(activation.constants().data(), x.device(), x.dtype(), x.raw(), y.mutable_raw(),
                                 x.numel());
    saved.save(activation.has_derivative_from_output() ? y : x);
    return y;
  }
  Gradients<1> backward(const Saved& saved, const Tensor& dy) const {
    const void* const kept = saved[0].raw();
    const Tensor dx = saved.take(0);
    activation.kernels().backward(activation.constants().data(), dx.device(), dx.dtype(), kept, dy.raw(),
                                  dx.mutable_raw(), dx.numel());
    return {dx};
  }
};

struct Gate {
  static constexpr const char* name = "gate";
  Activation activation;

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& up) const {
    const Tensor y = Tensor::empty_like(x);
    activation.kernels().gate(activation.constants().data(), x.device(), x.dtype(), x.raw(), up.raw(), y.mutable_raw(),
                              x.numel());
    saved.save(x, up);
    return y;
  }
  Gradients<2> backward(const Saved& saved, const Tensor& dy) const {
    const void *const x = saved[0].raw(), *const up = saved[1].raw();
    const Tensor dx = saved.take(0), dup = saved.take(1);
    activation.kernels().gate_backward(activation.constants().data(), dx.device(), dx.dtype(), x, up, dy.raw(),
                                       dx.mutable_raw(), dup.mutable_raw(), dx.numel());
    return {dx, dup};
  }
};

struct ActivateLearned {
  static constexpr const char* name = "learned_activation";
  LearnedActivationKernels kernels;
  std::vector<double> constants;

  static LearnedActivationKernels::Form form(const Tensor& x, const Tensor& p) {
    return {x.device(), x.dtype(), x.shape().rows(), x.shape().last(), p.shape().rank() == 2};
  }
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& p) const {
    const Tensor y = Tensor::empty_like(x);
    kernels.forward(constants.data(), form(x, p), x.raw(), p.raw(), y.mutable_raw());
    saved.save(x, p);
    return y;
  }
  Gradients<2> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor &x = saved[0], &p = saved[1];
    Gradients<2> d;
    if (saved.needs(0)) {
      d[0] = Tensor::empty_like(x);
      kernels.backward(constants.data(), form(x, p), x.raw(), p.raw(), dy.raw(), d[0].mutable_raw());
    }
    if (saved.needs(1)) {
      d[1] = Tensor::empty_like(p);
      kernels.parameters_backward(constants.data(), form(x, p), x.raw(), p.raw(), dy.raw(), d[1].mutable_raw());
    }
    return d;
  }
};

// The witness of the explicit slopes: the same values, differentiated by dual numbers.  f64 on the CPU.
struct ActivateByDual {
  static constexpr const char* name = "activation_by_dual";
  Activation activation;

  Tensor forward(Saved& saved, const Tensor& x) const {
    const Tensor y = Tensor::empty_like(x);
    for (int64_t i = 0; i < x.numel(); ++i) y.mutable_data<double>()[i] = activation.value(x.data<double>()[i]);
    saved.save(x);
    return y;
  }
  Gradients<1> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor &x = saved[0], dx = Tensor::empty_like(x);
    for (int64_t i = 0; i < x.numel(); ++i)
      dx.mutable_data<double>()[i] = activation.derivative_by_dual(x.data<double>()[i]) * dy.data<double>()[i];
    return {dx};
  }
};
struct ActivateLearnedByDual {  // p (n)
  static constexpr const char* name = "learned_activation_by_dual";
  LearnedActivation activation;

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& p) const {
    const Tensor y = Tensor::empty_like(x);
    for (int64_t i = 0; i < x.numel(); ++i)
      y.mutable_data<double>()[i] = activation.value(x.data<double>()[i], numbers(p));
    saved.save(x, p);
    return y;
  }
  Gradients<2> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor &x = saved[0], &p = saved[1], dx = Tensor::empty_like(x), dp = Tensor::zeros_like(p);
    for (int64_t i = 0; i < x.numel(); ++i) {
      const double at = x.data<double>()[i], g = dy.data<double>()[i];
      dx.mutable_data<double>()[i] = activation.derivative_by_dual(at, numbers(p)) * g;
      for (int k = 0; k < activation.parameter_count(); ++k)
        dp.mutable_data<double>()[k] += activation.derivative_by_dual(at, numbers(p), k) * g;
    }
    return {dx, dp};
  }
  static std::span<const double> numbers(const Tensor& p) { return {p.data<double>(), static_cast<size_t>(p.numel())}; }
};

// Moves what stands near a kink away from it, because no difference quotient can be had there.
Tensor off_kinks(const ActivationInfo& info, const Tensor& x) {
  constexpr double near = 0.02;
  double* const place = x.mutable_data<double>();
  for (int64_t i = 0; i < x.numel(); ++i)
    for (const double kink : info.kinks)
      if (std::fabs(place[i] - kink) < near) place[i] = kink + (place[i] < kink ? -2 * near : 2 * near);
  return x;
}

void check_formula(const ActivationInfo& info, size_t formula_bytes) {  // an empty struct has a size of one byte
  check(formula_bytes == std::max<size_t>(1, info.constants.size() * sizeof(double)), info.name, ": its info names ",
        info.constants.size(), " constants; its members must be as many doubles, in the same order");
}

std::vector<std::string> as_strings(const std::vector<std::string_view>& views) { return {views.begin(), views.end()}; }

// An exception, or the loader is told: none may come out of a plug-in's static objects.
bool well_formed(const ActivationInfo& info, size_t formula_bytes) {
  try {
    check_formula(info, formula_bytes);
  } catch (const Error& error) {
    if (!orrery::detail::refuse_in_plugin(error.what())) throw;
    return false;
  }
  return true;
}

}  // namespace

bool detail::add_activation(const ActivationInfo& info, const ActivationKernels& kernels, size_t formula_bytes,
                            MakeGradientCase make) {
  if (!well_formed(info, formula_bytes)) return false;
  activations().add({info.name, &info, kernels}, as_strings(info.aliases));
  return add_gradient_case("activation", std::string(info.name), make);
}
GradientCase detail::activation_case(const ActivationInfo& info, const CaseTensors& random) {
  const Activation f(info.name);
  const Tensor x = off_kinks(info, scale(random({4, 9}), 3));
  // F(x) u + F(x), so that the operation and its gated form are both in it
  return {{{"x", x}, {"up", random({4, 9})}},
          [f](const auto& in) { return f.gate(in[0], in[1]) + f(in[0]); },
          [f](const auto& in) {
            const Tensor y = record(ActivateByDual{f}, in[0]);
            return y * in[1] + y;
          }};
}
bool detail::add_learned_activation(const ActivationInfo& info, const LearnedActivationKernels& kernels,
                                    size_t formula_bytes, int parameters, MakeGradientCase make) {
  if (!well_formed(info, formula_bytes)) return false;
  check(parameters == static_cast<int>(info.parameters.size()), info.name, ": its info names ", info.parameters.size(),
        " parameters, not ", parameters);
  learned_activations().add({info.name, &info, kernels}, as_strings(info.aliases));
  return add_gradient_case("learned_activation", std::string(info.name), make);
}
GradientCase detail::learned_activation_case(const ActivationInfo& info, const CaseTensors& random) {
  const LearnedActivation f(info.name);
  const Tensor p = Tensor::from(Shape{f.parameter_count()}, f.initial_parameters(), Dtype::f64);
  return {{{"x", off_kinks(info, scale(random({4, 9}), 3))}, {"p", p}},
          [f](const auto& in) { return f(in[0], in[1]); },
          [f](const auto& in) { return record(ActivateLearnedByDual{f}, in[0], in[1]); }};
}

Registry<detail::ActivationEntry>& detail::activations() {
  static Registry<ActivationEntry> all("activation");
  return all;
}
Registry<detail::LearnedActivationEntry>& detail::learned_activations() {
  static Registry<LearnedActivationEntry> all("learned activation");
  return all;
}
const bool family_of_activations = add_family("activation", [] { return activation_names(); });
const bool family_of_learned_activations = add_family("learned_activation", [] { return learned_activation_names(); });
std::vector<std::string> activation_names() { return detail::activations().names(); }
std::vector<std::string> learned_activation_names() { return detail::learned_activations().names(); }
bool is_learned_activation(std::string_view name) { return detail::learned_activations().find(name) != nullptr; }

Activation::Activation(const Spec& spec) {
  if (!detail::activations().find(spec.name) && is_learned_activation(spec.name))
    fail("activation: '", spec.name, "' has parameters to learn, which have no place here; there are ",
         join(activation_names()));
  entry_ = &detail::activations().at(spec.name);
  constants_ = read_constants(info(), spec);
}
std::string Activation::spec() const { return print_spec(info(), constants_); }
double Activation::derivative_from_output(double y) const {
  check(has_derivative_from_output(), "activation: the slope of ", info().name,
        " cannot be had from its output; use derivative(x)");
  return entry_->kernels.derivative_from_output(constants_.data(), y);
}
Tensor Activation::operator()(const Tensor& x) const { return record(Activate{*this}, x); }
Tensor Activation::gate(const Tensor& x, const Tensor& up) const {
  check_same_kind("gate", x, up);
  check(x.shape() == up.shape(), "gate: x ", x.shape(), " and up ", up.shape(), " must have one shape");
  return record(Gate{*this}, x, up);
}

LearnedActivation::LearnedActivation(const Spec& spec) : entry_(&detail::learned_activations().at(spec.name)) {
  constants_ = read_constants(info(), spec);
}
std::string LearnedActivation::spec() const { return print_spec(info(), constants_); }
std::vector<double> LearnedActivation::initial_parameters() const {
  std::vector<double> p(info().parameters.size());
  entry_->kernels.initial_parameters(constants_.data(), p.data());
  if (info().positive)
    for (double& each : p) each = scalar::log(scalar::expm1(each));
  return p;
}
void LearnedActivation::check_count(std::span<const double> p) const {
  check(p.size() == info().parameters.size(), info().name, ": ", p.size(), " parameters; it takes ",
        info().parameters.size());
}
std::vector<double> LearnedActivation::seen_by_formula(std::span<const double> p) const {
  check_count(p);
  std::vector<double> seen(p.begin(), p.end());
  if (info().positive)
    for (double& each : seen) each = scalar::softplus(each);
  return seen;
}
double LearnedActivation::value(double x, std::span<const double> p) const {
  return entry_->kernels.value(constants_.data(), x, seen_by_formula(p).data());
}
double LearnedActivation::derivative(double x, std::span<const double> p) const {
  return entry_->kernels.derivative(constants_.data(), x, seen_by_formula(p).data());
}
std::vector<double> LearnedActivation::parameter_derivatives(double x, std::span<const double> p) const {
  std::vector<double> out(p.size());
  entry_->kernels.parameter_derivatives(constants_.data(), x, seen_by_formula(p).data(), out.data());
  if (info().positive)
    for (size_t k = 0; k < p.size(); ++k) out[k] *= scalar::sigmoid(p[k]);
  return out;
}
double LearnedActivation::derivative_by_dual(double x, std::span<const double> p, int parameter) const {
  check_count(p);
  return entry_->kernels.derivative_by_dual(constants_.data(), x, p.data(), parameter);
}
Tensor LearnedActivation::operator()(const Tensor& x, const Tensor& p) const {
  check_same_kind("learned_activation", x, p);
  const int64_t n = parameter_count(), channels = x.shape().last();
  const bool fits = p.shape() == Shape{n} || p.shape() == Shape{n, channels};
  check(fits, info().name, ": parameters of shape ", p.shape(), " for x ", x.shape(), "; they must be ", Shape{n},
        ", or ", Shape{n, channels}, " for one of each channel");
  // A few numbers: making them positive is no work, and ordinary operations know its slope.
  return record(ActivateLearned{entry_->kernels, constants_}, x, info().positive ? Activation("softplus")(p) : p);
}

}  // namespace orrery::nn
