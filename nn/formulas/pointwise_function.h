// An activation of a layer with its learned parameters, if it has any.
#pragma once

#include "nn/base/module.h"
#include "nn/formulas/activation.h"

namespace orrery::nn {

class PointwiseFunction {
 public:
  // `shared`: the model's parameters, if all its layers share them. `heads`: each has its own.
  explicit PointwiseFunction(const Activation& function, Parameter* shared = nullptr, int64_t heads = 0)
      : function_(function), shared_(function.parameter_count() > 0 ? shared : nullptr) {
    const int64_t n = function_.parameter_count();
    if (n == 0) return;
    if (!parameters()) {
      Parameter& made = shared_ ? *shared_ : own_;
      made = Parameter(heads > 0 ? Shape{heads, n} : Shape{n}, listed(function_.initial_parameters()));
      made.decay = false, made.is_lookup_table = true;  // a row per head, not a matrix
    }
    check(parameters().size(-1) == n, "activation: the number of learned parameters of ", function_.spec(), " is ", n,
          ", but the model shares ", parameters().size(-1), "; use one activation in all layers");
  }
  bool has_parameters() const { return function_.parameter_count() > 0; }
  const Activation& activation() const { return function_; }
  Tensor parameters() const { return (shared_ ? *shared_ : own_).value; }  // (n) or (heads, n); undefined: none
  Tensor operator()(const Tensor& x) const { return function_(x, parameters()); }
  Tensor gate(const Tensor& x, const Tensor& up) const { return function_.gate(x, up, parameters()); }
  // Returns the mean of of(x -> F(x)) over the heads, or its value if they share their parameters.
  template <class Of>
  double mean_over_heads(const Of& of) const {
    const std::vector<double> all = parameters() ? parameters().to_vector() : std::vector<double>();
    const size_t n = static_cast<size_t>(function_.parameter_count()), sets = n > 0 ? all.size() / n : 1;
    double sum = 0;
    for (size_t set = 0; set < sets; ++set)
      sum += of([&](double x) { return function_.value(x, std::span(all).subspan(set * n, n)); });
    return sum / static_cast<double>(sets);
  }
  void visit(Visitor& v, std::string_view name = "activation") { v(name, own_); }

 private:
  Activation function_;
  Parameter* shared_;  // null: own_
  Parameter own_;      // undefined if there are none, or they are shared
};

}  // namespace orrery::nn
