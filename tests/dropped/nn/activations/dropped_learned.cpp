// a x^2 / (1 + x^2):  df/dx = 2 a x / (1 + x^2)^2,  df/da = x^2 / (1 + x^2)
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct DroppedLearned {
  static inline const ActivationInfo info{.name = "dropped_learned",
                                          .formula = "a * x^2 / (1 + x^2)",
                                          .source = "a test",
                                          .constants = {{"initial", 2}},
                                          .parameters = {"a"},
                                          .limits = {2, 2}};
  static constexpr int parameters = 1;
  double initial = 2;

  void initial_parameters(double* p) const { p[0] = initial; }
  template <class T>
  HOST_DEVICE T value(T x, const T* p) const {
    return p[0] * (x * x / (1 + x * x));
  }
  template <class T>
  HOST_DEVICE T derivative(T x, const T* p) const {
    const T square = 1 + x * x;
    return p[0] * 2 * x / (square * square);
  }
  template <class T>
  HOST_DEVICE void parameter_derivatives(T x, const T*, T* out) const {
    out[0] = x * x / (1 + x * x);
  }
};
REGISTER_ACTIVATION(DroppedLearned);

}  // namespace
}  // namespace orrery::nn
