// Attention on a GPU behind pointers.  Its kernels are compiled for the function that weighs the scores, for f32 and
// f64 (bf16 is f32's with other loads and stores, chosen at run time, and for some activations has tensor cores of its
// own): about 11 seconds of nvcc for each of 29 activations, 3 minutes of a build on two cores.  So every activation
// has kernels of its own, made where its formula stands, and none runs through a table of functions inside the
// innermost loop.
#pragma once

#include "engine/attention/attention.h"
#if defined(ORRERY_CUDA) || defined(EMULATE_CUDA)
#include "cuda/attention/attention.h"
#endif

namespace orrery::nn {

// The functions of engine/base/attention.h on device pointers.  Null where nothing can be on a device.
struct AttendKernels {
  using Constants = const double*;  // of the activation
  template <class T>
  struct For {
    using A = Arithmetic<T>;
    void (*forward)(Constants, const AttendSizes&, const AttendOptions&, const AttendInputs<T>&, Tokens<T> output,
                    A* log_sum) = nullptr;
    void (*statistics)(Constants, const AttendSizes&, const AttendOptions&, const AttendInputs<T>&, const A* log_sum,
                       const RowStatistics<A>&) = nullptr;
    void (*backward)(Constants, const AttendSizes&, const AttendOptions&, const AttendInputs<T>&,
                     Tokens<const T> output, const A* log_sum, Tokens<const T> output_gradient,
                     const AttendGradients<T>&, const StatisticsGradients<A>&) = nullptr;
  };
  For<float> f32 = {};
  For<double> f64 = {};
  For<bf16> half = {};

  template <class T>
  const For<T>& of() const {
    if constexpr (std::is_same_v<T, float>)
      return f32;
    else if constexpr (std::is_same_v<T, double>)
      return f64;
    else
      return half;
  }
};

#if defined(ORRERY_CUDA) || defined(EMULATE_CUDA)
namespace detail {

// Weighting::weights(constants) is a weighting of cuda/attention/attention.h.
template <class Weighting>
struct AttendKernelsOf {
  using Constants = AttendKernels::Constants;

  template <class T>
  static void forward(Constants c, const AttendSizes& sizes, const AttendOptions& options,
                      const AttendInputs<T>& inputs, Tokens<T> output, Arithmetic<T>* log_sum) {
    cuda::attend_forward<T>(sizes, options, Weighting::weights(c), inputs, output, log_sum);
  }
  template <class T>
  static void statistics(Constants c, const AttendSizes& sizes, const AttendOptions& options,
                         const AttendInputs<T>& inputs, const Arithmetic<T>* log_sum,
                         const RowStatistics<Arithmetic<T>>& results) {
    cuda::attend_statistics<T>(sizes, options, Weighting::weights(c), inputs, log_sum, results);
  }
  template <class T>
  static void backward(Constants c, const AttendSizes& sizes, const AttendOptions& options,
                       const AttendInputs<T>& inputs, Tokens<const T> output, const Arithmetic<T>* log_sum,
                       Tokens<const T> output_gradient, const AttendGradients<T>& gradients,
                       const StatisticsGradients<Arithmetic<T>>& of_statistics) {
    cuda::attend_backward<T>(sizes, options, Weighting::weights(c), inputs, output, log_sum, output_gradient, gradients,
                             of_statistics);
  }
  template <class T>
  static constexpr AttendKernels::For<T> made_for() {
    return {forward<T>, statistics<T>, backward<T>};
  }
  static constexpr AttendKernels all() { return {made_for<float>(), made_for<double>(), made_for<bf16>()}; }
};

}  // namespace detail
#endif

}  // namespace orrery::nn
