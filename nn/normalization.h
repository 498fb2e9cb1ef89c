// Normalizations: what stands before (or after) a sublayer.
#pragma once

#include "nn/entry.h"
#include "nn/module.h"

namespace orrery::nn {

class Activation;

struct NormalizationOptions {
  int64_t width;     // size of the last axis
  bool bias = true;  // where the normalization has one
};

using NormalizationEntry = Entry<Module, const NormalizationOptions&>;
Registry<NormalizationEntry>& normalizations();

// "layer", "layer(epsilon=1e-6)", "rms": a module (..., width) -> (..., width).
std::unique_ptr<Module> make_normalization(const Spec& spec, const NormalizationOptions& options);

// y = (x - mean) / sqrt(variance + epsilon) * weight + bias over the last axis; bias may be undefined.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon = 1e-5);
// y = x / sqrt(mean of x^2 + epsilon) * weight over the last axis.
Tensor rms_norm(const Tensor& x, const Tensor& weight, double epsilon = 1e-5);
// y = F(alpha x + shift) * weight + bias, element by element: alpha and shift (1), weight and bias over the last axis.
// All but alpha may be undefined.
Tensor dynamic_norm(const Tensor& x, const Activation& activation, const Tensor& alpha, const Tensor& shift = {},
                    const Tensor& weight = {}, const Tensor& bias = {});

#define REGISTER_NORMALIZATION(Type)                     \
  [[maybe_unused]] static const bool registered_##Type = \
      ::orrery::nn::register_type<Type>(::orrery::nn::normalizations())

}  // namespace orrery::nn
