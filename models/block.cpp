#include "models/block.h"

#include "engine/ops.h"
#include "engine/watch.h"

namespace orrery::models {

Block::Block(const BlockOptions& o)
    : dropout_(o.dropout),
      attention_norm_(nn::make_normalization(o.normalization, {o.width, o.normalization_bias})),
      feed_forward_norm_(nn::make_normalization(o.normalization, {o.width, o.normalization_bias})),
      attention_(nn::make_attention(o.attention, {.width = o.width,
                                                  .heads = o.heads,
                                                  .causal = o.causal,
                                                  .bias = o.bias,
                                                  .layers = o.layers,
                                                  .context = o.context,
                                                  .position = o.position})),
      feed_forward_(nn::make_feed_forward(o.feed_forward,
                                          {.width = o.width, .inner = o.inner, .bias = o.bias, .layers = o.layers})),
      attention_dropout_(o.dropout),
      feed_forward_dropout_(o.dropout) {
  if (feed_forward_->adds_nothing()) feed_forward_norm_.reset();
}

Tensor Block::add(const Tensor& x, nn::Module& normalization, nn::Sublayer& sublayer, nn::Dropout& dropout,
                  nn::Pass& pass) const {
  const Tensor normalized = normalization(x, pass);
  if (dropout_ > 0 && pass.training) return x + dropout(sublayer(normalized, pass), pass);
  return sublayer.onto(normalized, x, pass);
}
Tensor Block::forward(const Tensor& x, nn::Pass& pass) {
  const Tensor read =
      watch(attention_->path(), "residual", add(x, *attention_norm_, *attention_, attention_dropout_, pass));
  if (!feed_forward_norm_) return watch(feed_forward_->path(), "residual", read);
  return watch(feed_forward_->path(), "residual",
               add(read, *feed_forward_norm_, *feed_forward_, feed_forward_dropout_, pass));
}
void Block::visit(nn::Visitor& v) {
  v("attention_norm", attention_norm_);
  v("attention", attention_);
  v("attention_dropout", attention_dropout_);
  v("feed_forward_norm", feed_forward_norm_);
  v("feed_forward", feed_forward_);
  v("feed_forward_dropout", feed_forward_dropout_);
}

}  // namespace orrery::models
