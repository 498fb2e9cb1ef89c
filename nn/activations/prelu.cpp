// PReLU: a leaky rectifier with a learned slope, usually one slope for each channel.
//   f(x; a)  = x if x > 0, else a x
//   df/dx    = 1 if x > 0, else a
//   df/da    = 0 if x > 0, else x
// Kink: 0, where the derivative jumps from a to 1; f'(0) = a. Initially a = 0.25.
// leaky_relu_learned starts at a = 0.01 (Jha and Reagen 2024, ReLU's Revival, arXiv:2410.09637; one
// a per layer). Without normalization training moves a to zero, an argument for ReLU there. Weight
// decay would do this too, so exempt a from it. Their f'(0) is 1, here it is a.
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct Prelu {
  static inline const ActivationInfo info{
      .name = "prelu",
      .formula = "x if x > 0 else a * x",
      .source = "He et al. 2015, arXiv:1502.01852; leaky_relu_learned, from 0.01: arXiv:2410.09637",
      .constants = {{"initial", 0.25}},
      .parameters = {"a"},
      .presets = {{"leaky_relu_learned", {0.01}}},
      .kinks = {0},
      .limits = {-ActivationInfo::infinity, ActivationInfo::infinity},
  };
  using tensor_cores = void;
  static constexpr int parameters = 1;
  double initial = 0.25;

  void initial_parameters(double* p) const { p[0] = initial; }
  template <class T>
  HOST_DEVICE T value(T x, const T* p) const {
    return x > 0 ? x : p[0] * x;
  }
  template <class T>
  HOST_DEVICE T derivative(T x, const T* p) const {
    return x > 0 ? T(1) : p[0];
  }
  template <class T>
  HOST_DEVICE void parameter_derivatives(T x, const T*, T* out) const {
    out[0] = x > 0 ? T(0) : x;
  }
};
REGISTER_ACTIVATION(Prelu);

}  // namespace
}  // namespace orrery::nn
