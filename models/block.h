// A residual block, built from four names.
#pragma once

#include "engine/config.h"
#include "nn/attention.h"
#include "nn/dropout.h"
#include "nn/feed_forward.h"
#include "nn/normalization.h"

namespace orrery::models {

struct BlockOptions {
  int64_t width = 128, heads = 4, inner = 512;
  Spec attention = parse_spec("softmax"), feed_forward = parse_spec("dense(gelu_tanh)"),
       normalization = parse_spec("layer");
  bool causal = true;
  bool bias = false;  // in linear layers
  bool normalization_bias = true;
  double dropout = 0;                      // of each sublayer's output
  int64_t layers = 1;                      // of the model
  int64_t context = 0;                     // the most tokens; 0: unknown
  const nn::Position* position = nullptr;  // of the model, which outlives the block
};

// Pre-norm:  x <- x + attention(norm(x)),  x <- x + feed_forward(norm(x)).   (B, T, width) -> (B, T, width)
class Block final : public nn::Module {
 public:
  explicit Block(const BlockOptions& options);
  Tensor forward(const Tensor& x, nn::Pass& pass) override;
  void visit(nn::Visitor& v) override;

 private:
  // sublayer(norm(x)) + x; the sublayer adds the residual itself unless dropout comes between.
  Tensor add(const Tensor& x, nn::Module& normalization, nn::Sublayer& sublayer, nn::Dropout& dropout,
             nn::Pass& pass) const;
  double dropout_;
  std::unique_ptr<nn::Module> attention_norm_, feed_forward_norm_;  // the second is absent with feed_forward=none
  std::unique_ptr<nn::Sublayer> attention_, feed_forward_;
  nn::Dropout attention_dropout_, feed_forward_dropout_;
};

}  // namespace orrery::models
