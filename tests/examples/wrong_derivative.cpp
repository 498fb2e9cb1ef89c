// gradcheck with registrations that it must refuse: activations with a wrong derivative and with a
// kink at a point of the check, losses with a wrong factor and a missing term, and a name without a
// case. The other activations are correct but state one false property each.
#include <iostream>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/terminal/process_io.h"
#include "nn/base/gradient_case.h"
#include "nn/formulas/kernels.h"
#include "nn/losses/base/loss.h"

namespace orrery::nn {
namespace {

struct WrongGelu {  // erf form forward, derivative of the tanh approximation: off by less than 1e-3
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

// x s with its derivative, s = sigmoid(x). The activations below state false properties.
struct Silu {
  template <class T>
  HOST_DEVICE T value(T x) const {
    return x * scalar::sigmoid(x);
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    const T s = scalar::sigmoid(x);
    return s * (1 + x * (1 - s));
  }
};
struct FalseZero : Silu {  // attention would skip values below zero
  static inline const ActivationInfo info{.name = "false_zero",
                                          .formula = "x s",
                                          .source = "none",
                                          .zero_below_zero = true,
                                          .limits = {0, ActivationInfo::infinity}};
};
REGISTER_ACTIVATION(FalseZero);
struct FalseLimits : Silu {
  static inline const ActivationInfo info{
      .name = "false_limits", .formula = "x s", .source = "none", .limits = {-1, ActivationInfo::infinity}};
};
REGISTER_ACTIVATION(FalseLimits);
struct FalseKink : Silu {  // a wrong derivative could hide there
  static inline const ActivationInfo info{
      .name = "false_kink", .formula = "x s", .source = "none", .kinks = {1}, .limits = {0, ActivationInfo::infinity}};
};
REGISTER_ACTIVATION(FalseKink);
struct HiddenKink {
  static inline const ActivationInfo info{
      .name = "hidden_kink", .formula = "max(x - 0.3, 0)", .source = "none", .limits = {0, ActivationInfo::infinity}};
  template <class T>
  HOST_DEVICE T value(T x) const {
    return x < T(0.3) ? T(0) : x - T(0.3);
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    return x > T(0.3) ? T(1) : T(0);
  }
};
REGISTER_ACTIVATION(HiddenKink);
struct FalseHomogeneous : Silu {  // attention would scale sums of weights instead of scores
  static inline const ActivationInfo info{
      .name = "false_homogeneous", .formula = "x s", .source = "none", .limits = {0, ActivationInfo::infinity}};
  using homogeneous = void;
};
REGISTER_ACTIVATION(FalseHomogeneous);
struct FalseFromOutput : Silu {  // silu falls before it rises: its output does not determine x
  static inline const ActivationInfo info{
      .name = "false_from_output", .formula = "x s", .source = "none", .limits = {0, ActivationInfo::infinity}};
  template <class T>
  HOST_DEVICE T derivative_from_output(T y) const {
    return y > 0 ? T(1) : T(0);
  }
};
REGISTER_ACTIVATION(FalseFromOutput);
struct FalseAtKink {  // correct from its output except at 0.3, where y = 0.6
  static inline const ActivationInfo info{.name = "false_at_kink",
                                          .formula = "2 x below 0.3, x + 0.3 above",
                                          .source = "none",
                                          .kinks = {0.3},
                                          .limits = {-ActivationInfo::infinity, ActivationInfo::infinity}};
  template <class T>
  HOST_DEVICE T value(T x) const {
    return x <= T(0.3) ? 2 * x : x + T(0.3);
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    return x <= T(0.3) ? T(2) : T(1);
  }
  template <class T>
  HOST_DEVICE T derivative_from_output(T y) const {
    return y < T(0.6) ? T(2) : T(1);
  }
};
REGISTER_ACTIVATION(FalseAtKink);
struct FalseDefault {
  static inline const ActivationInfo info{.name = "false_default",
                                          .formula = "slope x",
                                          .source = "none",
                                          .constants = {{"slope", 2, between(0, 1)}},
                                          .limits = {-ActivationInfo::infinity, ActivationInfo::infinity}};
  double slope = 2;
  template <class T>
  HOST_DEVICE T value(T x) const {
    return T(slope) * x;
  }
  template <class T>
  HOST_DEVICE T derivative(T) const {
    return T(slope);
  }
};
REGISTER_ACTIVATION(FalseDefault);

struct KinkOnGrid {  // correct, but a finite difference at x = 0.3125 is the mean of both slopes
  static inline const ActivationInfo info{.name = "kink_on_grid",
                                          .formula = "max(x - 0.3125, 0)",
                                          .source = "none",
                                          .limits = {0, ActivationInfo::infinity}};
  template <class T>
  HOST_DEVICE T value(T x) const {
    return x < T(0.3125) ? T(0) : x - T(0.3125);
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    return x < T(0.3125) ? T(0) : T(1);
  }
};
REGISTER_ACTIVATION(KinkOnGrid);

struct MissingTerm {
  static constexpr const char* name = "missing_term";
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight) const {
    saved.save(x, weight);
    return x * weight + weight;
  }
  Gradients<2> backward(const Saved& saved, const Tensor& dy) const {
    return {saved[1] * dy, saved[0] * dy};  // the weight's own dy is missing
  }
};
GradientCase missing_case(const CaseTensors& random) {
  return {{{"x", random({2, 3})}, {"weight", random({2, 3})}},
          [](const auto& in) { return record(MissingTerm{}, in[0], in[1]); },
          [](const auto& in) { return in[0] * in[1] + in[1]; }};
}
REGISTER_GRADIENT_CASE("loss", "missing_term", missing_case);

struct WrongSquare {
  static constexpr const char* name = "wrong_square";
  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.save(x);
    return x * x;
  }
  Gradients<1> backward(const Saved& saved, const Tensor& dy) const { return {saved[0] * dy}; }  // the 2 is missing
};
GradientCase wrong_gradient_case(const CaseTensors& random) {
  return {{{"x", random({2, 3})}},
          [](const auto& in) { return record(WrongSquare{}, in[0]); },
          [](const auto& in) { return in[0] * in[0]; }};
}
REGISTER_GRADIENT_CASE("loss", "wrong_square", wrong_gradient_case);

const bool registered =
    (losses().add({"wrong_square", "x^2", "none"}), losses().add({"missing_term", "x w + w", "none"}),
     losses().add({"without_case", "x", "none"}), true);

}  // namespace
}  // namespace orrery::nn

int main(int count, char** words) {
  try {
    const int code = orrery::program::gradcheck({words + 1, words + count});
    std::cout.flush();
    orrery::program::end_program(code);
  } catch (const std::exception& error) {
    std::cerr << "orrery: " << error.what() << "\n";
  }
  return 2;
}
