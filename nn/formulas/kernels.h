// Registers a formula and compiles its roles; for nn/activations/*.cpp and new activations.
//
//   struct Silu {                                        // its only members are its constants, as doubles
//     static inline const ActivationInfo info{...};
//     using tensor_cores = void;                         // optional; separate kernels for attention in bf16
//     using homogeneous = void;                          // optional; F(a x) = a F(x) for a > 0, so these scale sums
//     using positive_part = void;                        // optional; F(x) = max(x, 0), so some compute F by rounding
//     double beta = 1;
//     template <class T> HOST_DEVICE T value(T x) const;        // T is float, double, Dual or ApproxFloat
//     template <class T> HOST_DEVICE T derivative(T x) const;
//     template <class T> HOST_DEVICE T derivative_from_output(T y) const;   // optional; saves memory
//     HOST_DEVICE Values<float, 2> short_form(float x) const;   // optional; F(x) and F'(x), as accurate as with
//                                                               // ApproxFloat, in few instructions: activation.cuh
//   };
//   REGISTER_ACTIVATION(Silu);
//
// A formula with learned parameters has `static constexpr int parameters`,
// `void initial_parameters(double* p) const`, and with `const T* p` value(x, p), derivative(x, p)
// and parameter_derivatives(x, p, T* out); see nn/activations/prelu.cpp.
#pragma once

#include "nn/formulas/attention_kernels.h"
#include "nn/formulas/dynamic_kernels.h"
#include "nn/formulas/elementwise.h"
#include "nn/formulas/epilogue.h"
#include "nn/formulas/tile_kernels.h"

namespace orrery::nn {
namespace detail {

template <class F, class... Roles>
struct WithRoles final : CompiledFormula<F>, Roles::template Of<F>... {
  explicit WithRoles(const F& f) : CompiledFormula<F>(f), Roles::template Of<F>(f)... {}
};

// The roles of a formula, each compiled for it. A new role needs a line here and its own file.
template <class F>
using WithAllRoles = WithRoles<F, ElementwiseRole, TileRole<float>, TileRole<double>, TileRole<bf16>,
#if defined(__CUDACC__) || defined(EMULATE_CUDA)
                               EpilogueRole<float>, EpilogueRole<double>, EpilogueRole<bf16>, AttentionRole<float>,
                               AttentionRole<double>,
#endif
                               DynamicNormRole>;

template <class F>
struct FormulaOf {  // a static member, because nvcc rejects a pointer to a function template here
  static std::unique_ptr<const Formula> make(const double* constants) {
    return std::make_unique<const WithAllRoles<F>>(with_constants<F>(constants));
  }
};

}  // namespace detail

template <class F>
requires PlainFormula<F> || LearnedFormula<F>
bool add_activation() {  // returns true, so that a static object can hold the result
  const detail::ActivationEntry entry{F::info.name, &F::info, detail::FormulaOf<F>::make};
  return detail::add_activation(entry, {sizeof(F), learned_count<F>});
}

#define REGISTER_ACTIVATION(Type) \
  [[maybe_unused]] static const bool registered_##Type = ::orrery::nn::add_activation<Type>()

}  // namespace orrery::nn
