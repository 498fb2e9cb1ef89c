// Activations: pointwise functions F with their slopes, found by name, on tensors of any shape and on plain numbers.
//
//   const Activation f("elu(alpha=0.5)");
//   Tensor y = f(x);               // recorded
//   double slope = f.derivative(0.3);
//
// Each is one file in nn/activations/ and has no other place: see activation_kernels.h.
#pragma once

#include <array>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/attention.h"
#include "engine/base/config.h"
#include "engine/base/registry.h"
#include "engine/tensor/tensor.h"
#include "nn/base/gradient_case.h"

namespace orrery::nn {

struct ActivationConstant {
  std::string_view name;
  double value;  // the default
  Limits range = {};
};

// What the file of an activation says about it, for the default constants.
struct ActivationInfo {
  static constexpr double infinity = std::numeric_limits<double>::infinity();

  std::string_view name, formula, source;
  std::vector<ActivationConstant> constants = {};  // in the order of the formula's members
  std::vector<std::string_view> parameters = {};   // of a learned one, in the order of p
  bool positive = false;                           // the formula sees softplus(p), and p is what is trained
  bool zero_below_zero = false;                    // F(x) = F'(x) = 0 for x <= 0, so attention may skip such tiles
  std::vector<std::string_view> aliases = {};
  std::vector<double> kinks = {};  // where a derivative, of whatever order, jumps
  std::array<double, 2> limits;    // of the value at -infinity and at +infinity; NaN: there is none
};

// The kernels of one formula for any constants.  Pointers are to numbers of the given dtype; those with a device run in
// parallel there, `values` and `tile_backward` run on the calling thread.
struct ActivationKernels {
  using Constants = const double*;
  double (*value)(Constants, double x);
  double (*derivative)(Constants, double x);
  double (*derivative_by_dual)(Constants, double x);
  double (*derivative_from_output)(Constants, double y);  // null if the formula has none
  void (*values)(Constants, Dtype, const void* x, void* y, int64_t n);
  void (*tile_backward)(Constants, Dtype, const void* x, const void* g, void* y, void* dx, int64_t n);
  void (*forward)(Constants, Device, Dtype, const void* x, void* y, int64_t n);
  void (*backward)(Constants, Device, Dtype, const void* kept, const void* dy, void* dx, int64_t n);
  void (*gate)(Constants, Device, Dtype, const void* x, const void* up, void* y, int64_t n);
  void (*gate_backward)(Constants, Device, Dtype, const void* x, const void* up, const void* dy, void* dx, void* dup,
                        int64_t n);
  // y = F(alpha x + shift) weight + bias for x (rows, channels), as nn/normalizations/dynamic.cpp uses it.
  struct Normalized {
    Device device;
    Dtype dtype;
    int64_t rows, channels;
    const void *x, *alpha, *shift, *weight, *bias;  // alpha and shift: one number each
  };
  void (*normalize)(Constants, const Normalized&, void* y);
  // sums: null, or four arrays of `channels` numbers in the arithmetic type: dweight, dbias, and the parts of dalpha
  // and of dshift that come from each channel.
  void (*normalize_backward)(Constants, const Normalized&, const void* dy, void* dx, void* const* sums);
  // On a GPU, a product with the activation in its epilogue: cuda::Matmul<T> of the dtype makes z, a = F(z); or it
  // makes da, of which C keeps dz = F'(z) da, and a = F(z).  Null where nothing can be on a device.
  void (*multiply)(Constants, Dtype, const void* product, int parts_of_f32, void* a);
  void (*multiply_backward)(Constants, Dtype, const void* product, int parts_of_f32, const void* z, void* a);
  AttentionKernels attention;  // with weights F(s)
};

namespace detail {
struct ActivationEntry {
  std::string_view name;
  const ActivationInfo* info;
  ActivationKernels kernels;
};
Registry<ActivationEntry>& activations();
bool add_activation(const ActivationInfo& info, const ActivationKernels& kernels, size_t formula_bytes,
                    MakeGradientCase make);
GradientCase activation_case(const ActivationInfo& info, const CaseTensors& random);
}  // namespace detail

class Activation {
 public:
  // "silu", "elu(0.5)", "elu(alpha=0.5)".  Unknown names and constants out of their range are errors.
  explicit Activation(std::string_view spec) : Activation(parse_spec(spec)) {}
  explicit Activation(const Spec& spec);

  const ActivationInfo& info() const { return *entry_->info; }
  const std::vector<double>& constants() const { return constants_; }
  std::string spec() const;  // Activation(a.spec()) is a again

  double value(double x) const { return entry_->kernels.value(constants_.data(), x); }
  double derivative(double x) const { return entry_->kernels.derivative(constants_.data(), x); }
  // The same from `value` run on dual numbers: exact, and written by nobody.
  double derivative_by_dual(double x) const { return entry_->kernels.derivative_by_dual(constants_.data(), x); }
  bool has_derivative_from_output() const { return entry_->kernels.derivative_from_output != nullptr; }
  double derivative_from_output(double y) const;  // an Error if there is none

  // y = F(x), of x's shape.  Keeps y if the slope can be had from it, else x.
  Tensor operator()(const Tensor& x) const;
  // y = F(x) up, of two tensors of one shape: a gated unit as one operation.  Keeps x and up.
  Tensor gate(const Tensor& x, const Tensor& up) const;

  // For tiles of other operations, on the calling thread; arrays of n numbers on the CPU, results may overwrite inputs.
  void values(Dtype dtype, const void* x, void* y, int64_t n) const {
    entry_->kernels.values(constants_.data(), dtype, x, y, n);
  }
  // dx = F'(x) g, and y = F(x) unless y is null
  void tile_backward(Dtype dtype, const void* x, const void* g, void* y, void* dx, int64_t n) const {
    entry_->kernels.tile_backward(constants_.data(), dtype, x, g, y, dx, n);
  }
  // For products on a GPU, whose epilogues they are: ActivationKernels::multiply and multiply_backward.
  void multiply(Dtype dtype, const void* product, int parts_of_f32, void* a) const {
    entry_->kernels.multiply(constants_.data(), dtype, product, parts_of_f32, a);
  }
  void multiply_backward(Dtype dtype, const void* product, int parts_of_f32, const void* z, void* a) const {
    entry_->kernels.multiply_backward(constants_.data(), dtype, product, parts_of_f32, z, a);
  }
  const ActivationKernels& kernels() const { return entry_->kernels; }

 private:
  const detail::ActivationEntry* entry_;
  std::vector<double> constants_;
};
std::vector<std::string> activation_names();  // without aliases, in alphabetical order

// ---- with parameters that are learned

// The formula's own parameters, which are softplus(p) where info says positive; only derivative_by_dual takes p.
struct LearnedActivationKernels {
  using Constants = const double*;
  // Parameters p are (n) numbers for all of x, or (n, C): a column for each of the C channels, x's last axis.
  struct Form {
    Device device;
    Dtype dtype;
    int64_t rows, channels;
    bool per_channel;
  };
  double (*value)(Constants, double x, const double* p);
  double (*derivative)(Constants, double x, const double* p);
  void (*parameter_derivatives)(Constants, double x, const double* p, double* out);
  double (*derivative_by_dual)(Constants, double x, const double* p, int parameter);  // -1: along x
  void (*initial_parameters)(Constants, double* p);
  void (*forward)(Constants, const Form&, const void* x, const void* p, void* y);
  void (*backward)(Constants, const Form&, const void* x, const void* p, const void* dy, void* dx);
  void (*parameters_backward)(Constants, const Form&, const void* x, const void* p, const void* dy, void* dp);
};

namespace detail {
struct LearnedActivationEntry {
  std::string_view name;
  const ActivationInfo* info;
  LearnedActivationKernels kernels;
};
Registry<LearnedActivationEntry>& learned_activations();
bool add_learned_activation(const ActivationInfo& info, const LearnedActivationKernels& kernels, size_t formula_bytes,
                            int parameters, MakeGradientCase make);
GradientCase learned_activation_case(const ActivationInfo& info, const CaseTensors& random);
}  // namespace detail

class LearnedActivation {
 public:
  explicit LearnedActivation(std::string_view spec) : LearnedActivation(parse_spec(spec)) {}
  explicit LearnedActivation(const Spec& spec);  // "prelu", "xielu(beta=0.5)"

  const ActivationInfo& info() const { return *entry_->info; }
  const std::vector<double>& constants() const { return constants_; }
  std::string spec() const;
  int parameter_count() const { return static_cast<int>(info().parameters.size()); }
  std::vector<double> initial_parameters() const;  // parameter_count() of them

  double value(double x, std::span<const double> p) const;
  double derivative(double x, std::span<const double> p) const;
  std::vector<double> parameter_derivatives(double x, std::span<const double> p) const;
  double derivative_by_dual(double x, std::span<const double> p, int parameter = -1) const;  // -1: along x

  // y = F(x; p).  p is (n), or (n, C) with a column for each place of x's last axis; of x's dtype.  Keeps x and p.
  Tensor operator()(const Tensor& x, const Tensor& p) const;

 private:
  void check_count(std::span<const double> p) const;
  std::vector<double> seen_by_formula(std::span<const double> p) const;
  const detail::LearnedActivationEntry* entry_;
  std::vector<double> constants_;
};
std::vector<std::string> learned_activation_names();
bool is_learned_activation(std::string_view name);  // an alias counts

}  // namespace orrery::nn
