// The pointwise function of the feed-forwards dense, gated and memory, and their common code.
#pragma once

#include <concepts>

#include "engine/autograd/autograd.h"
#include "engine/types/dispatch.h"
#include "nn/feed_forwards/base/feed_forward.h"

namespace orrery::nn {

// The function of a layer. Without parameters it is fused into the layer's operation; with learned
// parameters it is a separate operation.
class PointwiseFunction {
 public:
  // `shared`: the model's parameters, if all its layers share them.
  explicit PointwiseFunction(const Spec& spec, Parameter* shared = nullptr)
      : function_(Activation::any(spec)), shared_(shared) {
    const int64_t n = function_.parameter_count();
    if (n > 0 && !parameters().value)
      (shared_ ? *shared_ : own_) = Parameter(Shape{n}, listed(function_.initial_parameters()));
  }
  bool has_parameters() const { return function_.parameter_count() > 0; }
  const Activation& activation() const { return function_; }
  Tensor operator()(const Tensor& x) const { return function_(x, parameters().value); }
  // Returns the function for attention over slots; throws, naming `owner`, if it has parameters.
  const Activation& slot_function(std::string_view owner) const {
    check(!has_parameters(), owner, ": '", function_.spec(),
          "' has learned parameters, which are not supported for slots; use an activation without, such as relu");
    return function_;
  }
  void visit(Visitor& v) { v("activation", own_); }

 private:
  const Parameter& parameters() const { return shared_ ? *shared_ : own_; }

  Activation function_;
  Parameter* shared_;
  Parameter own_;  // undefined if there are none, or they are shared
};

// dense_feed_forward of nn/feed_forwards/base/feed_forward.h with either kind of function.
Tensor dense_feed_forward(const Tensor& x, const PointwiseFunction& function, const Tensor& input,
                          const Tensor& input_bias, const Tensor& output, const Tensor& output_bias,
                          const Tensor& residual);

// An autograd operation from a Formula that is a template of the element type:
//   static constexpr const char* name = "dense_feed_forward";
//   static constexpr int inputs = 6;
//   template <class T> Tensor forward_as(Saved&, inputs...) const;
//   template <class T> Gradients<6> backward_as(const Saved&, const Tensor& dy) const;
template <class Formula>
struct DispatchedOperation : Formula {
  template <std::same_as<Tensor>... Input>
  Tensor forward(Saved& saved, const Tensor& x, const Input&... other) const {
    const Formula& formula = *this;
    return dispatch(x.dtype(), Formula::name,
                    [&]<class T>() { return formula.template forward_as<T>(saved, x, other...); });
  }
  Gradients<Formula::inputs> backward(const Saved& saved, const Tensor& dy) const {
    const Formula& formula = *this;
    return dispatch(dy.dtype(), Formula::name, [&]<class T>() { return formula.template backward_as<T>(saved, dy); });
  }
};

}  // namespace orrery::nn
