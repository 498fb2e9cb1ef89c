// Normalizations: what stands before (or after) a sublayer.
#pragma once

#include "nn/base/entry.h"
#include "nn/base/module.h"

namespace orrery::nn {

class Activation;

struct NormalizationOptions {
  int64_t width;              // size of the last axis
  bool bias = true;           // where the normalization has one
  bool causal = false;        // no token may see a later one
  bool of_attention = false;  // it belongs to an attention, not to a feed-forward or the end of a model
};

using NormalizationEntry = Entry<Module, const NormalizationOptions&>;
Registry<NormalizationEntry>& normalizations();

// "layer", "layer(epsilon=1e-6)", "dyt(0.5)", "none": a module (..., width) -> (..., width).
std::unique_ptr<Module> make_normalization(const Spec& spec, const NormalizationOptions& options);

// y = (x - mean) / sqrt(variance + epsilon) * weight + bias over the last axis; bias may be undefined.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon = 1e-5);
// y = x / sqrt(mean of x^2 + epsilon) * weight over the last axis.
Tensor rms_norm(const Tensor& x, const Tensor& weight, double epsilon = 1e-5);
// y = F(alpha x + shift) * weight + bias, element by element: alpha and shift (1), weight and bias over the last axis.
// All but alpha may be undefined.
Tensor dynamic_norm(const Tensor& x, const Activation& activation, const Tensor& alpha, const Tensor& shift = {},
                    const Tensor& weight = {}, const Tensor& bias = {});

// One row of x (B, ..., C) for each token.  With lengths (B) i32, x is (B, T, C) and the tokens from a sequence's
// length on are padding: they count in no statistic, their y is 0 and so is their dx.
struct ChannelStatistics {
  Tensor mean, variance;  // (C), in the arithmetic type, over the tokens; the variance is divided by their number
  Tensor tokens;          // their number, (1), where the others are and of their dtype
};
ChannelStatistics channel_statistics(const Tensor& x, const Tensor& lengths = {});  // without gradient
// y = (x - mean) / sqrt(variance + epsilon) * weight + bias by channel.  If the statistics are those of x itself, the
// gradient of x goes through them; else they are constants.
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const ChannelStatistics& statistics,
                  bool of_x, const Tensor& lengths = {}, double epsilon = 1e-5);

// The same with the mean and the variance of each group of neighbouring channels: of each token, or if `over_sequence`
// of all tokens of a sequence together.
Tensor group_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t groups, bool over_sequence = false,
                  const Tensor& lengths = {}, double epsilon = 1e-5);

#define REGISTER_NORMALIZATION(Type)                     \
  [[maybe_unused]] static const bool registered_##Type = \
      ::orrery::nn::register_type<Type>(::orrery::nn::normalizations())

}  // namespace orrery::nn
