// Common code of the feed-forwards dense, gated and memory.
#pragma once

#include <concepts>

#include "engine/autograd/autograd.h"
#include "engine/types/dispatch.h"
#include "nn/feed_forwards/base/feed_forward.h"
#include "nn/formulas/pointwise_function.h"

namespace orrery::nn {

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
