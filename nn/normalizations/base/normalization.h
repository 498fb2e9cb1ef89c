// Normalizations: modules before (or after) a sublayer.
#pragma once

#include "nn/base/entry.h"
#include "nn/base/module.h"

namespace orrery::nn {

class Activation;

struct NormalizationOptions {
  int64_t width;                  // size of the last axis
  bool bias = true;               // only for normalizations that have a bias
  bool causal = false;            // no token may depend on a later one
  bool before_attention = false;  // the sublayer is an attention, not a feed-forward or the end of a model
};

using NormalizationEntry = Entry<Module, const NormalizationOptions&>;
Registry<NormalizationEntry>& normalizations();

// Makes a module (..., width) -> (..., width): "layer", "layer(epsilon=1e-6)", "dyt(0.5)", "none".
std::unique_ptr<Module> make_normalization(const Spec& spec, const NormalizationOptions& options);

// A normalization that subtracts means of x: with its divisors held fixed, y is linear in the rest.
class SubtractsMeans {
 public:
  virtual ~SubtractsMeans() = default;
  virtual Tensor without_means(const Tensor& x) const = 0;  // x without padding
};

// A normalization with a weight and, if the options have one, a bias per channel, initially 1 and 0.
class AffineNormalization : public Module {
 public:
  explicit AffineNormalization(const NormalizationOptions& options) : weight_(Shape{options.width}, constant(1)) {
    if (options.bias) bias_ = Parameter(Shape{options.width}, constant(0));
  }
  void visit(Visitor& v) override {
    v("weight", weight_);
    v("bias", bias_);
  }

 protected:
  Parameter weight_, bias_;  // bias: undefined if there is none
};
// Throws unless weight and bias, which may be undefined, have the size of the last axis of x.
void check_affine(const char* operation, const Tensor& x, const Tensor& weight, const Tensor& bias = {});

// (..., C) -> (..., C): (x - mean) / sqrt(variance + epsilon) * weight + bias; weight (C), bias (C) or undefined.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon = 1e-5);
// (..., C) -> (..., C): x / sqrt(mean of x^2 + epsilon) * weight.
Tensor rms_norm(const Tensor& x, const Tensor& weight, double epsilon = 1e-5);
// (..., C) -> (..., C): F(alpha x + shift) * weight + bias; alpha and shift (1), weight and bias (C),
// learned parameters p of F (n). All except alpha may be undefined.
Tensor dynamic_norm(const Tensor& x, const Activation& activation, const Tensor& alpha, const Tensor& shift = {},
                    const Tensor& weight = {}, const Tensor& bias = {}, const Tensor& p = {});

// x (B, ..., C) has one row per token. With lengths (B) i32, x is (B, T, C) and tokens from a
// sequence's length on are padding. Statistics exclude padding, whose y and dx are 0.
struct ChannelStatistics {
  Tensor mean, variance;  // (C), in the arithmetic type; the variance divides by the number of tokens N, not N - 1
  Tensor tokens;          // number of tokens, (1); device and dtype as above
};
ChannelStatistics channel_statistics(const Tensor& x, const Tensor& lengths = {});  // without gradient
// (B, ..., C) -> (B, ..., C): (x - mean) / sqrt(variance + epsilon) * weight + bias by channel.
// `from_x`: the gradient of x flows through the statistics, which are those of x; else constants.
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const ChannelStatistics& statistics,
                  bool from_x, const Tensor& lengths = {}, double epsilon = 1e-5);

// (B, ..., C) -> (B, ..., C), with the mean and variance of each group of adjacent channels, in each
// token or, if `over_sequence`, in all tokens of a sequence together.
Tensor group_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t groups, bool over_sequence = false,
                  const Tensor& lengths = {}, double epsilon = 1e-5);

#define REGISTER_NORMALIZATION(Type)                     \
  [[maybe_unused]] static const bool registered_##Type = \
      ::orrery::nn::register_type<Type>(::orrery::nn::normalizations())

}  // namespace orrery::nn
