// Activations: pointwise functions F and their derivatives, by name, on tensors and plain numbers.
//
//   const Activation f("elu(alpha=0.5)");
//   Tensor y = f(x);               // recorded
//   double derivative = f.derivative(0.3);
//
// Some have learned parameters p:
//
//   const Activation g("prelu");
//   Tensor y = g(x, p);
//
// Each is one file in nn/activations/, which includes nn/formulas/kernels.h. A role is an abstract
// class of kernels that an operation has compiled for every formula: activation.role<Role>().
#pragma once

#include <array>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/math/tile_function.h"
#include "engine/settings/registry.h"
#include "engine/settings/spec.h"
#include "engine/tensor/tensor.h"
#include "nn/base/gradient_case.h"

namespace orrery {
struct Setting;
}

namespace orrery::nn {

struct ActivationConstant {
  std::string_view name;
  double value;  // the default
  Limits range = between(-1e6, 1e6);
};
struct ActivationPreset {  // another name with other default constants
  std::string_view name;
  std::vector<double> constants;
};

// Properties of an activation as its file states them, for default constants and initial p.
struct ActivationInfo {
  static constexpr double infinity = std::numeric_limits<double>::infinity();

  std::string_view name, formula, source;
  std::vector<ActivationConstant> constants = {};  // in the order of the formula's members
  std::vector<std::string_view> parameters = {};   // learned parameters, in the order of p
  bool positive = false;                           // the formula gets softplus(p); p is trained
  bool zero_below_zero = false;                    // F(x) = F'(x) = 0 for x <= 0, so attention may skip such tiles
  std::vector<std::string_view> aliases = {};
  std::vector<ActivationPreset> presets = {};
  std::vector<double> kinks = {};  // where a derivative of any order jumps
  std::array<double, 2> limits;    // values at -infinity and at +infinity; NaN: no limit
};

// ---- roles of the operations of this folder, compiled for every formula: elementwise.h, tile_kernels.h

// On tensors of one shape, with parameters p: (n), or (n, C) with a column for each channel of x's
// last axis; undefined if the formula has none.
class ElementwiseRole {
 public:
  static constexpr const char* role = "activation";
  template <class F>
  class Of;
  virtual void forward(const Tensor& x, const Tensor& p, const Tensor& y) const = 0;
  // x_or_y: y if the derivative follows from y, else x. dx may share the memory of x_or_y.
  virtual void backward(const Tensor& x_or_y, const Tensor& p, const Tensor& dy, const Tensor& dx) const = 0;
  virtual void parameters_backward(const Tensor& x, const Tensor& p, const Tensor& dy, const Tensor& dp) const = 0;
  // F(x) up, for formulas without parameters; the others throw.
  virtual void gate(const Tensor& x, const Tensor& up, const Tensor& y) const = 0;
  virtual void gate_backward(const Tensor& x, const Tensor& up, const Tensor& dy, const Tensor& dx,
                             const Tensor& dup) const = 0;

 protected:
  ~ElementwiseRole() = default;
};

template <class T>
class TileRole : public TileFunction<T> {  // in tiles of other operations
 public:
  static constexpr const char* role = "activation of a tile";
  template <class F>
  class Of;

 protected:
  ~TileRole() = default;
};

namespace detail {

// A formula with its constants, on plain numbers. p are the formula's own parameters: softplus of
// the trained ones if info.positive. Only derivative_by_dual takes the trained ones.
class Formula {
 public:
  virtual ~Formula() = default;
  virtual double value(double x, const double* p) const = 0;
  virtual double derivative(double x, const double* p) const = 0;
  virtual double derivative_by_dual(double x, const double* p, int parameter) const = 0;  // -1: with respect to x
  virtual bool is_homogeneous() const = 0;
  virtual bool has_derivative_from_output() const = 0;
  virtual double derivative_from_output(double y) const = 0;
  virtual void parameter_derivatives(double x, const double* p, double* out) const = 0;
  virtual void initial_parameters(double* p) const = 0;
};

struct ActivationEntry {
  std::string_view name;
  const ActivationInfo* info;
  std::unique_ptr<const Formula> (*make)(const double* constants);
};
Registry<ActivationEntry>& activations();
// Size of the formula in bytes, and the number of its parameters.
struct FormulaSizes {
  size_t bytes;
  int parameters;
};
bool add_activation(const ActivationEntry& entry, const FormulaSizes& sizes);

}  // namespace detail

class Activation {
 public:
  // "silu", "elu(0.5)", "elu(alpha=0.5)". Throws for unknown names and constants out of their range.
  explicit Activation(std::string_view spec) : Activation(parse_spec(spec)) {}
  explicit Activation(const Spec& spec);

  const ActivationInfo& info() const { return *info_; }
  const std::vector<double>& constants() const { return constants_; }
  std::string spec() const;  // Activation(a.spec()) equals a
  int parameter_count() const { return static_cast<int>(info().parameters.size()); }
  std::vector<double> initial_parameters() const;  // parameter_count() values

  // p: parameter_count() trained values
  double value(double x, std::span<const double> p = {}) const;
  double derivative(double x, std::span<const double> p = {}) const;
  std::vector<double> parameter_derivatives(double x, std::span<const double> p) const;
  // Derivatives of `value` with dual numbers: exact and independent. -1: with respect to x.
  double derivative_by_dual(double x, std::span<const double> p = {}, int parameter = -1) const;
  bool is_homogeneous() const { return formula_->is_homogeneous(); }  // F(a x) = a F(x) for a > 0, as the file states
  bool has_derivative_from_output() const { return formula_->has_derivative_from_output(); }
  double derivative_from_output(double y) const;  // throws if has_derivative_from_output() is false

  // Returns F(x; p), of x's shape. Saves p, and y if the derivative follows from it, else x. p:
  // undefined without parameters; else (n), or (n, C) with a column per channel of x, in x's dtype.
  Tensor operator()(const Tensor& x, const Tensor& p = {}) const;
  // Returns F(x) up for tensors of one shape: a gated unit as one operation. Saves x and up. With
  // parameters p, it is two operations.
  Tensor gate(const Tensor& x, const Tensor& up, const Tensor& p = {}) const;
  // Returns the parameters that the formula gets, from the trained ones.
  Tensor formula_parameters(const Tensor& p) const { return p && info().positive ? Activation("softplus")(p) : p; }
  // Throws unless p is (n), or (heads, n) if they are given; undefined without learned parameters.
  void check_parameters(const char* owner, const Tensor& p, int64_t heads = 0) const;

  // Throws if the role needs a CUDA build.
  template <class Role>
  const Role& role() const {
    const Role* const kernels = dynamic_cast<const Role*>(formula_.get());
    if (!kernels) fail_without_role(Role::role);
    return *kernels;
  }

 private:
  [[noreturn]] void fail_without_role(const char* role) const;
  void check_count(std::span<const double> p) const;
  std::vector<double> formula_parameters(std::span<const double> p) const;
  const ActivationInfo* info_ = nullptr;
  std::vector<double> constants_;
  std::shared_ptr<const detail::Formula> formula_;
};
// Names without aliases, in alphabetical order: activations without and with learned parameters.
std::vector<std::string> activation_names();
std::vector<std::string> learned_activation_names();
std::vector<Setting> ranges_of_activation(std::string_view name);  // its constants with their limits; no values

}  // namespace orrery::nn
