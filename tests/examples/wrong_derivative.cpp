// The program's gradcheck with three things registered that it must refuse: an activation whose slope is wrong, a
// normalization's case whose gradient is wrong, and a name that has no case at all.
#include <iostream>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "examples/orrery/commands.h"
#include "nn/activations/base/kernels.h"
#include "nn/base/gradient_case.h"
#include "nn/losses/base/loss.h"

namespace orrery::nn {
namespace {

struct WrongGelu {  // the erf form forward, the slope of the tanh approximation: off by less than 1e-3
  static inline const ActivationInfo info{
      .name = "wrong_gelu", .formula = "x Phi(x)", .source = "none", .limits = {0, ActivationInfo::infinity}};
  template <class T>
  HOST_DEVICE T value(T x) const {
    return x * scalar::normal_distribution(x);
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    const T k = T(0.7978845608028654), inner = k * (x + T(0.044715) * x * x * x), t = scalar::tanh(inner);
    return T(0.5) * (1 + t) + T(0.5) * x * (1 - t * t) * k * (1 + T(0.134145) * x * x);
  }
};
REGISTER_ACTIVATION(WrongGelu);

struct WrongSquare {
  static constexpr const char* name = "wrong_square";
  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.save(x);
    return x * x;
  }
  Gradients<1> backward(const Saved& saved, const Tensor& dy) const { return {saved[0] * dy}; }  // the 2 is missing
};
GradientCase wrong_case(const CaseTensors& random) {
  return {{{"x", random({2, 3})}},
          [](const auto& in) { return record(WrongSquare{}, in[0]); },
          [](const auto& in) { return in[0] * in[0]; }};
}
REGISTER_GRADIENT_CASE("loss", "wrong_square", wrong_case);

const bool registered =
    (losses().add({"wrong_square", "x^2", "none"}), losses().add({"without_case", "x", "none"}), true);

}  // namespace
}  // namespace orrery::nn

int main(int count, char** words) {
  try {
    return orrery::program::gradcheck({words + 1, words + count});
  } catch (const std::exception& error) {
    std::cerr << "orrery: " << error.what() << "\n";
  }
  return 2;
}
