// Attentions: what a block reads from its context.
#pragma once

#include "nn/entry.h"
#include "nn/sublayer.h"

namespace orrery::nn {

struct AttentionOptions {
  int64_t width;          // in and out
  int64_t heads;          // query heads; the head size is width / heads
  int64_t key_heads = 0;  // key/value heads, each shared by heads / key_heads query heads; 0: as many as heads
  bool causal = true;
  bool bias = true;
  int64_t layers = 1;  // of the model: the output projection starts at N(0, deviation^2 / (2 layers))
  double deviation = 0.02;
};

using AttentionEntry = Entry<Sublayer, const AttentionOptions&>;
Registry<AttentionEntry>& attentions();
std::unique_ptr<Sublayer> make_attention(const Spec& spec, const AttentionOptions& options);  // "softmax(dropout=0.1)"

struct SoftmaxAttention {  // the operation's settings
  double scale;            // of the scores: 1 / sqrt(head size) by default in the layer
  bool causal = true;
  double dropout = 0;  // of the weights
  RandomKey key{};
};
// o_i = sum_j softmax_j(scale <q_i, k_j>) v_j per head, tile by tile.  q (B, Tq, H, D), k (B, Tk, Hk, D), v (B, Tk, Hk,
// Dv), H a multiple of Hk; lengths (B) i32 or undefined; documents (B, T) i32 or undefined.  Returns (B, Tq, H, Dv).
Tensor softmax_attention(const Tensor& q, const Tensor& k, const Tensor& v, const SoftmaxAttention& settings,
                         const Tensor& lengths = {}, const Tensor& documents = {});

#define REGISTER_ATTENTION(Type) \
  [[maybe_unused]] static const bool registered_##Type = ::orrery::nn::register_type<Type>(::orrery::nn::attentions())

}  // namespace orrery::nn
