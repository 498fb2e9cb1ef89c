// Turns one formula into everything that uses it.  Included by nn/activations/*.cpp and by whoever adds an activation;
// nobody edits it.
//
//   struct Silu {                                        // its only members are its constants, as doubles
//     static inline const ActivationInfo info{...};
//     using tensor_cores = void;                         // optional; kernels of their own for attention in bf16
//     double beta = 1;
//     template <class T> HOST_DEVICE T value(T x) const;        // T is float, double, or Dual where it is tested
//     template <class T> HOST_DEVICE T derivative(T x) const;
//     template <class T> HOST_DEVICE T derivative_from_output(T y) const;   // optional; saves memory
//   };
//   REGISTER_ACTIVATION(Silu);
//
// A learned one has `static constexpr int parameters`, `void initial_parameters(double* p) const`, and with `const T*
// p` value(x, p), derivative(x, p) and parameter_derivatives(x, p, T* out); see activations/prelu.cpp.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <type_traits>

#include "engine/base/dispatch.h"
#include "engine/base/dual.h"
#include "engine/base/scalar.h"
#include "engine/loops/loops.h"
#include "nn/activations/base/activation.h"
#include "nn/normalizations/base/dynamic_kernels.h"
#if defined(__CUDACC__) || defined(EMULATE_CUDA)
#include "cuda/attention/attention.cuh"
#include "cuda/matmul/activation.cuh"
#endif

namespace orrery::nn {

template <class F>
concept ActivationFormula = std::is_trivially_copyable_v<F> && requires(const F f, float x, double z) {
  { F::info } -> std::convertible_to<const ActivationInfo&>;
  { f.value(x) } -> std::same_as<float>;
  { f.value(z) } -> std::same_as<double>;
  { f.derivative(x) } -> std::same_as<float>;
  { f.derivative(z) } -> std::same_as<double>;
};
template <class F>
concept HasDerivativeFromOutput = requires(const F f, float y) {
  { f.derivative_from_output(y) } -> std::same_as<float>;
};

template <class F>
concept LearnedActivationFormula = std::is_trivially_copyable_v<F> &&
    requires(const F f, float x, double z, const float* p, const double* q) {
  { F::info } -> std::convertible_to<const ActivationInfo&>;
  { F::parameters } -> std::convertible_to<int>;
  { f.value(x, p) } -> std::same_as<float>;
  { f.value(z, q) } -> std::same_as<double>;
  { f.derivative(x, p) } -> std::same_as<float>;
  { f.derivative(z, q) } -> std::same_as<double>;
};

namespace detail {

template <class F>
F with_constants(const double* constants) {
  if constexpr (std::is_empty_v<F>) {
    return F{};
  } else {
    std::array<double, sizeof(F) / sizeof(double)> all;
    std::copy_n(constants, all.size(), all.begin());
    return std::bit_cast<F>(all);
  }
}

template <class F>
struct ValueOf {  // x -> F(x)
  F f;
  template <class T>
  HOST_DEVICE T operator()(T x) const {
    return f.value(x);
  }
};
template <class F>
struct SlopeTimes {  // (x, g) -> F'(x) g
  F f;
  template <class T>
  HOST_DEVICE T operator()(T x, T g) const {
    return f.derivative(x) * g;
  }
};
template <class F>
struct SlopeFromOutputTimes {  // (F(x), g) -> F'(x) g
  F f;
  template <class T>
  HOST_DEVICE T operator()(T y, T g) const {
    return f.derivative_from_output(y) * g;
  }
};
template <class F>
struct ValueAndSlopeTimes {  // (x, g) -> F(x), F'(x) g
  F f;
  template <class T>
  HOST_DEVICE Values<T, 2> operator()(T x, T g) const {
    return {{f.value(x), f.derivative(x) * g}};
  }
};
template <class F>
struct Gated {  // (x, up) -> F(x) up
  F f;
  template <class T>
  HOST_DEVICE T operator()(T x, T up) const {
    return f.value(x) * up;
  }
};
template <class F>
struct GatedBackward {  // (x, up, g) -> F'(x) up g, F(x) g
  F f;
  template <class T>
  HOST_DEVICE Values<T, 2> operator()(T x, T up, T g) const {
    return {{f.derivative(x) * up * g, f.value(x) * g}};
  }
};

template <class T>
const T* as(const void* p) {
  return static_cast<const T*>(p);
}
template <class T>
T* as(void* p) {
  return static_cast<T*>(p);
}

#if defined(__CUDACC__) || defined(EMULATE_CUDA)
template <class F>
struct PointwiseWeighting {
  static cuda::PointwiseWeights<F> weights(const double* constants) {
    return {with_constants<F>(constants), F::info.zero_below_zero};
  }
};
#endif

template <class F>
struct KernelsOf {
  using Constants = const double*;
  static constexpr const char* name = "activation";

  static double value(Constants c, double x) { return with_constants<F>(c).value(x); }
  static double derivative(Constants c, double x) { return with_constants<F>(c).derivative(x); }
  static double derivative_by_dual(Constants c, double x) { return with_constants<F>(c).value(Dual(x, 1)).slope; }
  static double derivative_from_output(Constants c, double y) { return with_constants<F>(c).derivative_from_output(y); }

  static void values(Constants c, Dtype dtype, const void* x, void* y, int64_t n) {
    dispatch(dtype, name,
             [&]<class T>() { orrery::detail::map_range(0, n, ValueOf<F>{with_constants<F>(c)}, as<T>(y), as<T>(x)); });
  }
  static void tile_backward(Constants c, Dtype dtype, const void* x, const void* g, void* y, void* dx, int64_t n) {
    dispatch(dtype, name, [&]<class T>() {
      const F f = with_constants<F>(c);
      if (y) {
        orrery::detail::map_range(0, n, ValueAndSlopeTimes<F>{f}, Outputs<T, 2>{{as<T>(y), as<T>(dx)}}, as<T>(x),
                                  as<T>(g));
      } else {
        orrery::detail::map_range(0, n, SlopeTimes<F>{f}, as<T>(dx), as<T>(x), as<T>(g));
      }
    });
  }
  static void forward(Constants c, Device device, Dtype dtype, const void* x, void* y, int64_t n) {
    dispatch(dtype, name, [&]<class T>() { map(device, n, ValueOf<F>{with_constants<F>(c)}, as<T>(y), as<T>(x)); });
  }
  static void backward(Constants c, Device device, Dtype dtype, const void* kept, const void* dy, void* dx, int64_t n) {
    using Slope = std::conditional_t<HasDerivativeFromOutput<F>, SlopeFromOutputTimes<F>, SlopeTimes<F>>;
    dispatch(dtype, name,
             [&]<class T>() { map(device, n, Slope{with_constants<F>(c)}, as<T>(dx), as<T>(kept), as<T>(dy)); });
  }
  static void gate(Constants c, Device device, Dtype dtype, const void* x, const void* up, void* y, int64_t n) {
    dispatch(dtype, "gate",
             [&]<class T>() { map(device, n, Gated<F>{with_constants<F>(c)}, as<T>(y), as<T>(x), as<T>(up)); });
  }
  static void gate_backward(Constants c, Device device, Dtype dtype, const void* x, const void* up, const void* dy,
                            void* dx, void* dup, int64_t n) {
    dispatch(dtype, "gate", [&]<class T>() {
      map(device, n, GatedBackward<F>{with_constants<F>(c)}, Outputs<T, 2>{{as<T>(dx), as<T>(dup)}}, as<T>(x),
          as<T>(up), as<T>(dy));
    });
  }
  static void normalize(Constants c, const ActivationKernels::Normalized& operands, void* y) {
    NormalizeKernelsOf<F>::forward(with_constants<F>(c), operands, y);
  }
  static void normalize_backward(Constants c, const ActivationKernels::Normalized& operands, const void* dy, void* dx,
                                 void* const* sums) {
    NormalizeKernelsOf<F>::backward(with_constants<F>(c), operands, dy, dx, sums);
  }
#if defined(__CUDACC__) || defined(EMULATE_CUDA)
  template <class T, class Epilogue>
  static void multiply_with(const cuda::Matmul<T>& p, int parts_of_f32, const Epilogue& epilogue) {
    check(!p.a.transposed && p.b.transposed == Epilogue::b_transposed && p.c[0].columns == p.n && !p.residual,
          "matmul: an activation follows products of rows with a weight into one matrix, without a residual");
    cuda::multiply_with(p, parts_of_f32, epilogue);
  }
  static void multiply(Constants c, Dtype dtype, const void* product, int parts_of_f32, void* a) {
    dispatch(dtype, "matmul", [&]<class T>() {
      const cuda::Matmul<T>& p = *as<cuda::Matmul<T>>(product);
      multiply_with(p, parts_of_f32, cuda::Activated<T, F>{with_constants<F>(c), as<T>(a), {p.bias}});
    });
  }
  static void multiply_backward(Constants c, Dtype dtype, const void* product, int parts_of_f32, const void* z,
                                void* a) {
    dispatch(dtype, "matmul", [&]<class T>() {
      const cuda::Matmul<T>& p = *as<cuda::Matmul<T>>(product);
      multiply_with(p, parts_of_f32, cuda::ActivatedBackward<T, F>{with_constants<F>(c), as<T>(a), {as<T>(z)}, p.n});
    });
  }
#endif
  static constexpr ActivationKernels all() {
    ActivationKernels k{value,         derivative, derivative_by_dual,
                        nullptr,       values,     tile_backward,
                        forward,       backward,   gate,
                        gate_backward, normalize,  normalize_backward,
                        nullptr,       nullptr,    {}};
#if defined(__CUDACC__) || defined(EMULATE_CUDA)
    k.multiply = multiply, k.multiply_backward = multiply_backward;
    k.attention = cuda::attention_kernels<PointwiseWeighting<F>>();
#endif
    if constexpr (HasDerivativeFromOutput<F>) k.derivative_from_output = derivative_from_output;
    return k;
  }
};

// ---- learned: p is (n), or (n, C) with a column for each of the C channels

// What element (or place in the row) i reads: p[k], or p[k][i].  A choice at run time would keep loops from
// vectorizing.
template <class F, bool PerChannel, class T>
HOST_DEVICE Values<Arithmetic<T>, F::parameters> parameters_at(const T* p, int64_t channels, int64_t i) {
  Values<Arithmetic<T>, F::parameters> own;
  for (int k = 0; k < F::parameters; ++k) own[k] = static_cast<Arithmetic<T>>(p[PerChannel ? k * channels + i : k]);
  return own;
}

template <class F, class T, bool PerChannel>
struct LearnedValue {  // y = F(x; p), row by row
  F f;
  const T* p;
  In<T> x;
  Out<T> y;
  int n;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const auto in = x.at(r * n);
    const auto out = y.at(r * n);
    const auto my = *this;
    if constexpr (PerChannel) {
      row.each([=](int i) { out[i] = my.f.value(in[i], parameters_at<F, true>(my.p, my.n, i).value); });
    } else {
      const auto shared = parameters_at<F, false>(p, 0, 0);
      row.each([=](int i) { out[i] = my.f.value(in[i], shared.value); });
    }
  }
};
template <class F, class T, bool PerChannel>
struct LearnedBackward {  // dx = dF/dx g
  F f;
  const T* p;
  In<T> x, g;
  Out<T> dx;
  int n;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const auto in = x.at(r * n), dy = g.at(r * n);
    const auto out = dx.at(r * n);
    const auto my = *this;
    if constexpr (PerChannel) {
      row.each([=](int i) { out[i] = my.f.derivative(in[i], parameters_at<F, true>(my.p, my.n, i).value) * dy[i]; });
    } else {
      const auto shared = parameters_at<F, false>(p, 0, 0);
      row.each([=](int i) { out[i] = my.f.derivative(in[i], shared.value) * dy[i]; });
    }
  }
};
template <class F, class T, bool PerChannel>
struct LearnedTerms {  // what element i adds to the gradient of each parameter
  F f;
  const T* p;
  In<T> x, g;
  int64_t channels;
  HOST_DEVICE Values<Arithmetic<T>, F::parameters> operator()(int64_t i, int64_t row) const {
    const auto own = parameters_at<F, PerChannel>(p, channels, i - row * channels);
    Values<Arithmetic<T>, F::parameters> terms;
    f.parameter_derivatives(x[i], own.value, terms.value);
    for (int k = 0; k < F::parameters; ++k) terms[k] *= g[i];
    return terms;
  }
};

template <class F>
struct LearnedKernelsOf {
  using Constants = const double*;
  using Form = LearnedActivationKernels::Form;
  static constexpr const char* name = "learned_activation";
  static constexpr int count = F::parameters;

  static double value(Constants c, double x, const double* p) { return with_constants<F>(c).value(x, p); }
  static double derivative(Constants c, double x, const double* p) { return with_constants<F>(c).derivative(x, p); }
  static void parameter_derivatives(Constants c, double x, const double* p, double* out) {
    with_constants<F>(c).parameter_derivatives(x, p, out);
  }
  static double derivative_by_dual(Constants c, double x, const double* p, int parameter) {
    Dual all[count];
    for (int k = 0; k < count; ++k) {
      const Dual trained(p[k], k == parameter);
      all[k] = F::info.positive ? scalar::softplus(trained) : trained;
    }
    return with_constants<F>(c).value(Dual(x, parameter < 0), static_cast<const Dual*>(all)).slope;
  }
  static void initial_parameters(Constants c, double* p) { with_constants<F>(c).initial_parameters(p); }

  // Calls run<T, PerChannel>() with what the form says.
  template <class Run>
  static void dispatch_form(const Form& form, const Run& run) {
    dispatch(form.dtype, name, [&]<class T>() {
      form.per_channel ? run.template operator()<T, true>() : run.template operator()<T, false>();
    });
  }
  static void forward(Constants c, const Form& form, const void* x, const void* p, void* y) {
    const int n = static_cast<int>(form.channels);
    dispatch_form(form, [&]<class T, bool PerChannel>() {
      rows(form.device, form.rows, n,
           LearnedValue<F, T, PerChannel>{with_constants<F>(c), as<T>(p), {as<T>(x)}, {as<T>(y)}, n});
    });
  }
  static void backward(Constants c, const Form& form, const void* x, const void* p, const void* dy, void* dx) {
    const int n = static_cast<int>(form.channels);
    dispatch_form(form, [&]<class T, bool PerChannel>() {
      rows(form.device, form.rows, n,
           LearnedBackward<F, T, PerChannel>{with_constants<F>(c), as<T>(p), {as<T>(x)}, {as<T>(dy)}, {as<T>(dx)}, n});
    });
  }
  static void parameters_backward(Constants c, const Form& form, const void* x, const void* p, const void* dy,
                                  void* dp) {
    const int64_t inner = form.per_channel ? form.channels : 1;
    const int64_t n = form.per_channel ? form.rows : form.rows * form.channels;
    dispatch_form(form, [&]<class T, bool PerChannel>() {
      Outputs<T, count> out;
      for (int k = 0; k < count; ++k) out.pointer[k] = as<T>(dp) + k * inner;
      reduce(form.device, 1, n, inner,
             LearnedTerms<F, T, PerChannel>{with_constants<F>(c), as<T>(p), {as<T>(x)}, {as<T>(dy)}, form.channels},
             out);
    });
  }
  static constexpr LearnedActivationKernels all() {
    return {value,   derivative, parameter_derivatives, derivative_by_dual, initial_parameters,
            forward, backward,   parameters_backward};
  }
};

}  // namespace detail

// Both return true, so that a static object can hold the result.
template <ActivationFormula F>
bool add_activation() {
  return detail::add_activation(F::info, detail::KernelsOf<F>::all(), sizeof(F),
                                [](const CaseTensors& random) { return detail::activation_case(F::info, random); });
}
template <LearnedActivationFormula F>
bool add_learned_activation() {
  return detail::add_learned_activation(
      F::info, detail::LearnedKernelsOf<F>::all(), sizeof(F), F::parameters,
      [](const CaseTensors& random) { return detail::learned_activation_case(F::info, random); });
}

#define REGISTER_ACTIVATION(Type) \
  [[maybe_unused]] static const bool registered_##Type = ::orrery::nn::add_activation<Type>()
#define REGISTER_LEARNED_ACTIVATION(Type) \
  [[maybe_unused]] static const bool registered_##Type = ::orrery::nn::add_learned_activation<Type>()

}  // namespace orrery::nn
