// Leaky ReLU with a slope that is learned: one for a layer, to see where training takes it.  Without normalization it
// goes to zero, which is the case for ReLU in such networks; weight decay would drive it there as well, so exempt it.
//   f(x; a)  = x if x >= 0, else a x
//   df/dx    = 1 if x >= 0, else a
//   df/da    = 0 if x >= 0, else x
// Kink: 0, where the slope jumps from a to 1 and is 1.  a starts at 0.01.
#include "nn/activations/base/kernels.h"

namespace orrery::nn {
namespace {

struct LeakyReluLearned {
  static inline const ActivationInfo info{
      .name = "leaky_relu_learned",
      .formula = "x if x >= 0 else a * x",
      .source = "Jha and Reagen 2024 (ReLU's Revival), arXiv:2410.09637",
      .constants = {{"initial", 0.01}},
      .parameters = {"a"},
      .kinks = {0},
      .limits = {-ActivationInfo::infinity, ActivationInfo::infinity},
  };
  static constexpr int parameters = 1;
  double initial = 0.01;

  void initial_parameters(double* p) const { p[0] = initial; }
  template <class T>
  HOST_DEVICE T value(T x, const T* p) const {
    return x < 0 ? p[0] * x : x;
  }
  template <class T>
  HOST_DEVICE T derivative(T x, const T* p) const {
    return x < 0 ? p[0] : T(1);
  }
  template <class T>
  HOST_DEVICE void parameter_derivatives(T x, const T*, T* out) const {
    out[0] = x < 0 ? x : T(0);
  }
};
REGISTER_LEARNED_ACTIVATION(LeakyReluLearned);

}  // namespace
}  // namespace orrery::nn
