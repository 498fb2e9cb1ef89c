#include "nn/formulas/activation.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "engine/autograd/autograd.h"
#include "engine/math/scalar.h"
#include "engine/ops/ops.h"
#include "engine/settings/config.h"

namespace orrery::nn {
namespace {

// Returns the constants as settings, so that they are read and checked like any other setting.
std::vector<Setting> settings_of_constants(const ActivationInfo& info, std::vector<double>& constants) {
  std::vector<Setting> settings;
  for (size_t i = 0; i < constants.size(); ++i)
    settings.push_back({std::string(info.constants[i].name), {}, &constants[i], "", info.constants[i].range});
  return settings;
}
std::vector<double> read_constants(const ActivationInfo& info, Spec spec) {
  std::vector<double> constants;
  for (const ActivationConstant& constant : info.constants) constants.push_back(constant.value);
  for (const ActivationPreset& preset : info.presets)
    if (preset.name == spec.name) constants = preset.constants;
  const std::vector<Setting> settings = settings_of_constants(info, constants);
  spec.name = info.name;  // errors are easier to follow without the alias
  read_settings(spec, settings);
  return constants;
}

template <int Inputs>  // x, and p if the formula has parameters
struct Activate {
  static constexpr const char* name = "activation";
  Activation activation;

  template <std::same_as<Tensor>... P>
  Tensor forward(Saved& saved, const Tensor& x, const P&... given) const {
    const Tensor y = Tensor::empty_like(x), p = std::get<0>(std::tuple(given..., Tensor()));
    activation.role<ElementwiseRole>().forward(x, p, y);
    saved.save(activation.has_derivative_from_output() ? y : x, p);
    return y;
  }
  Gradients<Inputs> backward(const Saved& saved, const Tensor& dy) const {
    const ElementwiseRole& role = activation.role<ElementwiseRole>();
    const Tensor &x_or_y = saved[0], &p = saved[1];
    Gradients<Inputs> d;
    if constexpr (Inputs > 1)
      if (saved.needs(1)) {
        d[1] = Tensor::empty_like(p);
        role.parameters_backward(x_or_y, p, dy, d[1]);
      }
    if (saved.needs(0)) {
      d[0] = saved.take(0);
      role.backward(x_or_y, p, dy, d[0]);
    }
    return d;
  }
};

struct Gate {
  static constexpr const char* name = "gate";
  Activation activation;

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& up) const {
    const Tensor y = Tensor::empty_like(x);
    activation.role<ElementwiseRole>().gate(x, up, y);
    saved.save(x, up);
    return y;
  }
  Gradients<2> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor &x = saved[0], &up = saved[1], dx = saved.take(0), dup = saved.take(1);
    activation.role<ElementwiseRole>().gate_backward(x, up, dy, dx, dup);
    return {dx, dup};
  }
};

// The independent check of the explicit derivatives: equal values, differentiated with dual
// numbers. f64 on the CPU; p is (n), or undefined.
struct ActivateByDual {
  static constexpr const char* name = "activation_by_dual";
  Activation activation;

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& p) const {
    const Tensor y = Tensor::empty_like(x);
    for (int64_t i = 0; i < x.numel(); ++i)
      y.mutable_data<double>()[i] = activation.value(x.data<double>()[i], numbers(p));
    saved.save(x, p);
    return y;
  }
  Gradients<2> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor &x = saved[0], &p = saved[1], dx = Tensor::empty_like(x);
    Tensor dp;
    if (p) dp = Tensor::zeros_like(p);
    for (int64_t i = 0; i < x.numel(); ++i) {
      const double x_i = x.data<double>()[i], g = dy.data<double>()[i];
      dx.mutable_data<double>()[i] = activation.derivative_by_dual(x_i, numbers(p)) * g;
      for (int k = 0; k < activation.parameter_count(); ++k)
        dp.mutable_data<double>()[k] += activation.derivative_by_dual(x_i, numbers(p), k) * g;
    }
    return {dx, dp};
  }
  static std::span<const double> numbers(const Tensor& p) {
    if (!p) return {};
    return {p.data<double>(), static_cast<size_t>(p.numel())};
  }
};

// Moves elements near a kink away from it, because finite differences are invalid there.
Tensor off_kinks(const ActivationInfo& info, const Tensor& x) {
  constexpr double near = 0.02;
  double* const data = x.mutable_data<double>();
  for (int64_t i = 0; i < x.numel(); ++i)
    for (const double kink : info.kinks)
      if (std::fabs(data[i] - kink) < near) data[i] = kink + (data[i] < kink ? -2 * near : 2 * near);
  return x;
}

void check_formula(const ActivationInfo& info, const detail::FormulaSizes& sizes) {
  const size_t bytes = std::max<size_t>(1, info.constants.size() * sizeof(double));  // an empty struct has one byte
  check(sizes.bytes == bytes, info.name, ": the number of constants in its info (", info.constants.size(),
        ") must equal the number of its members, all double and in the same order");
  check(sizes.parameters == static_cast<int>(info.parameters.size()), info.name,
        ": the number of parameters in its info (", info.parameters.size(), ") must be ", sizes.parameters);
  for (const ActivationPreset& preset : info.presets)
    check(preset.constants.size() == info.constants.size(), preset.name, ": the number of constants of this preset (",
          preset.constants.size(), ") must be that of ", info.name, ", ", info.constants.size());
}

// Throws, but in a plug-in only informs the loader: its static objects must not throw.
bool well_formed(const ActivationInfo& info, const detail::FormulaSizes& sizes) {
  try {
    check_formula(info, sizes);
  } catch (const Error& error) {
    if (!orrery::detail::refuse_in_plugin(error.what())) throw;
    return false;
  }
  return true;
}

GradientCase gradient_case(const ActivationInfo& info, const CaseTensors& random) {
  const Activation f(info.name);
  const Tensor x = off_kinks(info, scale(random({4, 9}), 3));
  if (f.parameter_count() > 0)
    return {{{"x", x}, {"p", Tensor::from(Shape{f.parameter_count()}, f.initial_parameters(), Dtype::f64)}},
            [f](const auto& in) { return f(in[0], in[1]); },
            [f](const auto& in) { return record(ActivateByDual{f}, in[0], in[1]); }};
  // F(x) u + F(x) covers the operation and its gated form.
  return {{{"x", x}, {"up", random({4, 9})}},
          [f](const auto& in) { return f.gate(in[0], in[1]) + f(in[0]); },
          [f](const auto& in) {
            const Tensor y = record(ActivateByDual{f}, in[0], Tensor());
            return y * in[1] + y;
          }};
}

std::vector<std::string> names(bool with_parameters) {
  std::vector<std::string> all;
  for (const auto& [name, entry] : detail::activations())
    if (entry.info->parameters.empty() != with_parameters) all.push_back(name);
  return all;
}
const bool family = add_family("activation", [] { return detail::activations().names(); });

}  // namespace

bool detail::add_activation(const ActivationEntry& entry, const FormulaSizes& sizes) {
  const ActivationInfo& info = *entry.info;
  if (!well_formed(info, sizes)) return false;
  std::vector<std::string> aliases(info.aliases.begin(), info.aliases.end());
  for (const ActivationPreset& preset : info.presets) aliases.emplace_back(preset.name);
  activations().add(entry, aliases);
  return add_gradient_case("activation", std::string(info.name),
                           [&info](const CaseTensors& random) { return gradient_case(info, random); });
}
Registry<detail::ActivationEntry>& detail::activations() {
  static Registry<ActivationEntry> all("activation");
  return all;
}
std::vector<std::string> activation_names() { return names(false); }
std::vector<std::string> learned_activation_names() { return names(true); }
std::vector<Setting> ranges_of_activation(std::string_view name) {
  const ActivationInfo& info = *detail::activations().at(std::string(name)).info;
  std::vector<double> none(info.constants.size());
  std::vector<Setting> settings = settings_of_constants(info, none);
  for (Setting& setting : settings) setting.value = static_cast<double*>(nullptr);
  return settings;
}

Activation::Activation(const Spec& spec) {
  const detail::ActivationEntry& entry = detail::activations().at(spec.name);
  info_ = entry.info;
  constants_ = read_constants(*entry.info, spec);
  formula_ = entry.make(constants_.data());
}
std::string Activation::spec() const {
  Spec spec{std::string(info().name), {}};
  for (size_t i = 0; i < constants_.size(); ++i)
    if (constants_[i] != info().constants[i].value)
      spec.items.push_back({std::string(info().constants[i].name), {print_number(constants_[i]), {}}});
  return print(spec);
}
void Activation::fail_without_role(const char* role) const {
  fail(role, ": '", info().name, "' was built without CUDA; configure with -DORRERY_CUDA=ON");
}

std::vector<double> Activation::initial_parameters() const {
  std::vector<double> p(info().parameters.size());
  formula_->initial_parameters(p.data());
  if (info().positive)
    for (double& each : p) each = scalar::log(scalar::expm1(each));
  return p;
}
void Activation::check_count(std::span<const double> p) const {
  check(p.size() == info().parameters.size(), info().name, ": the number of parameters (", p.size(), ") must be ",
        info().parameters.size());
}
void Activation::check_parameters(const char* owner, const Tensor& p, int64_t heads) const {
  const int64_t n = parameter_count();
  check(n > 0 ? p && (p.shape() == Shape{n} || p.shape() == Shape{heads, n}) : !p, owner,
        ": the number of learned parameters of ", info().name, " is ", n, ", but a tensor of shape ",
        p ? p.shape() : Shape{0}, " was given");
}
std::vector<double> Activation::formula_parameters(std::span<const double> p) const {
  check_count(p);
  std::vector<double> result(p.begin(), p.end());
  if (info().positive)
    for (double& each : result) each = scalar::softplus(each);
  return result;
}
double Activation::value(double x, std::span<const double> p) const {
  return formula_->value(x, formula_parameters(p).data());
}
double Activation::derivative(double x, std::span<const double> p) const {
  return formula_->derivative(x, formula_parameters(p).data());
}
std::vector<double> Activation::parameter_derivatives(double x, std::span<const double> p) const {
  std::vector<double> out(p.size());
  formula_->parameter_derivatives(x, formula_parameters(p).data(), out.data());
  if (info().positive)
    for (size_t k = 0; k < p.size(); ++k) out[k] *= scalar::sigmoid(p[k]);
  return out;
}
double Activation::derivative_by_dual(double x, std::span<const double> p, int parameter) const {
  check_count(p);
  return formula_->derivative_by_dual(x, p.data(), parameter);
}
double Activation::derivative_from_output(double y) const {
  check(has_derivative_from_output(), "activation: the derivative of ", info().name,
        " cannot be computed from its output; use derivative(x)");
  return formula_->derivative_from_output(y);
}

Tensor Activation::operator()(const Tensor& x, const Tensor& p) const {
  if (!p && info().parameters.empty()) return record(Activate<1>{*this}, x);
  const int64_t n = parameter_count(), channels = x.shape().last();
  check(p && n > 0, "activation: the number of learned parameters of ", info().name, " is ", n, ", but ",
        p ? "some" : "none", " were given");
  check_same_kind("activation", x, p);
  const bool fits = p.shape() == Shape{n} || p.shape() == Shape{n, channels};
  check(fits, info().name, ": parameters of shape ", p.shape(), " do not fit x ", x.shape(), "; they must be ",
        Shape{n}, ", or ", Shape{n, channels}, " for one per channel");
  // Softplus of a few numbers is cheap, and autograd differentiates it.
  return record(Activate<2>{*this}, x, formula_parameters(p));
}
Tensor Activation::gate(const Tensor& x, const Tensor& up, const Tensor& p) const {
  check_same_kind("gate", x, up);
  check(x.shape() == up.shape(), "gate: x ", x.shape(), " and up ", up.shape(), " must have the same shape");
  return parameter_count() > 0 ? (*this)(x, p) * up : record(Gate{*this}, x, up);
}

}  // namespace orrery::nn
