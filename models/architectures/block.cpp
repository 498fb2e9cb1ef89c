#include "models/architectures/block.h"

namespace orrery::models {
namespace {

bool is_same(const Spec& normalization) { return normalization.name == "same"; }

const BlockOptions& checked(const BlockOptions& o) {
  const bool without = o.feed_forward.name == "none",
             scaled = !o.feed_forward_divisor.is_one() || !o.feed_forward_residual.is_one();
  check(o.norm_place == "pre" || o.norm_place == "post", "block: norm_place '", o.norm_place,
        "' must be pre (before each sublayer) or post (after the residual is added)");
  check(!o.parallel || o.norm_place == "pre",
        "block: parallel=yes needs a normalization before the sublayers, not norm_place=post; choose one of the two");
  check(!o.parallel || is_same(o.feed_forward_normalization),
        "block: parallel=yes has one normalization, so feed_forward_normalization must be same, not ",
        o.feed_forward_normalization);
  check(!scaled || !o.parallel,
        "block: feed_forward_divisor and feed_forward_residual cannot be combined with parallel=yes; leave one out");
  check(!scaled || !without,
        "block: feed_forward_divisor and feed_forward_residual need a feed-forward, not feed_forward=none; leave them "
        "out");
  check(o.feed_forward_divisor.initial != 0,
        "block: feed_forward_divisor must not be or start at 0; use 1 for no division");
  return o;
}

std::unique_ptr<nn::Module> make_norm(const BlockOptions& o, const Spec& own, bool before_attention) {
  return nn::make_normalization(is_same(own) ? o.normalization : own,
                                {o.width, o.normalization_bias, o.causal, before_attention});
}

std::unique_ptr<nn::Sublayer> make_attention(const BlockOptions& o) {
  return nn::make_attention(o.attention, {.width = o.width,
                                          .heads = o.heads,
                                          .kv_heads = o.kv_heads,
                                          .head_size = o.head_size,
                                          .causal = o.causal,
                                          .bias = o.attention_bias.value_or(o.bias),
                                          .query_key_bias = o.query_key_bias,
                                          .layers = o.layers,
                                          .initial_weights = o.initial_weights,
                                          .context = o.context,
                                          .position = o.position,
                                          .mask = o.mask,
                                          .shared_activation = o.attention_activation});
}

}  // namespace

Block::Block(const BlockOptions& o)
    : parallel_(checked(o).parallel),
      attention_(make_norm(o, o.attention_normalization, true), make_attention(o),
                 {.dropout = o.dropout, .post = o.norm_place == "post", .gain = o.residual_gain}) {
  auto layer = nn::make_feed_forward(o.feed_forward, {.width = o.width,
                                                      .d_ff = o.d_ff,
                                                      .bias = o.feed_forward_bias.value_or(o.bias),
                                                      .layers = o.layers,
                                                      .initial_weights = o.initial_weights,
                                                      .shared_activation = o.shared_activation});
  if (layer->is_noop()) return;
  feed_forward_ = std::make_unique<ResidualStep>(
      parallel_ ? nullptr : make_norm(o, o.feed_forward_normalization, false), std::move(layer),
      ResidualOptions{o.dropout, o.norm_place == "post", o.residual_gain, o.feed_forward_divisor,
                      o.feed_forward_residual});
}

Tensor Block::forward(const Tensor& x, nn::ForwardPass& pass) {
  if (!feed_forward_) return attention_.forward(x, pass);
  if (!parallel_) return feed_forward_->forward(attention_.forward(x, pass), pass);
  const Tensor before = attention_.stream(x), input = attention_.normalize(before, pass);
  const Tensor between = feed_forward_->stream(attention_.add(before, input, pass));
  return feed_forward_->add(between, input, pass);
}
void Block::visit(nn::Visitor& v) {
  attention_.visit(v, parallel_ ? "norm" : "attention_norm", "attention", "attention_");
  if (feed_forward_) feed_forward_->visit(v, "feed_forward_norm", "feed_forward", "feed_forward_");
}

}  // namespace orrery::models
