// Identity: no activation. As an attention weighting: linear attention; in a gate: bilinear unit.
//   f(x)  = x
//   f'(x) = 1
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct Identity {
  static inline const ActivationInfo info{
      .name = "identity",
      .formula = "x",
      .source = "the bilinear unit of Shazeer 2020, arXiv:2002.05202",
      .aliases = {"linear"},
      .limits = {-ActivationInfo::infinity, ActivationInfo::infinity},
  };
  using tensor_cores = void;
  using homogeneous = void;

  template <class T>
  HOST_DEVICE T value(T x) const {
    return x;
  }
  template <class T>
  HOST_DEVICE T derivative(T) const {
    return 1;
  }
  template <class T>
  HOST_DEVICE T derivative_from_output(T) const {
    return 1;
  }
};
REGISTER_ACTIVATION(Identity);

}  // namespace
}  // namespace orrery::nn
