#include "models/architectures/block.h"

#include "engine/autograd/hooks.h"
#include "engine/ops/ops.h"

namespace orrery::models {
namespace {

bool is_one(const LearnableNumber& n) { return !n.learned && n.initial == 1; }
bool is_same(const Spec& normalization) { return normalization.name == "same"; }

const BlockOptions& checked(const BlockOptions& o) {
  const bool without = o.feed_forward.name == "none",
             scaled = !is_one(o.feed_forward_divisor) || !is_one(o.feed_forward_residual);
  check(o.norm_place == "pre" || o.norm_place == "post", "block: norm_place '", o.norm_place,
        "' must be pre (before each sublayer) or post (after the residual is added)");
  check(!o.parallel || o.norm_place == "pre",
        "block: parallel=yes reads one normalization of x and has no place for norm_place=post; choose one of the two");
  check(!o.parallel || is_same(o.feed_forward_normalization),
        "block: parallel=yes has one normalization, that of the attention, so feed_forward_normalization must be same, "
        "not ",
        o.feed_forward_normalization);
  check(!scaled || !o.parallel,
        "block: feed_forward_divisor and feed_forward_residual scale the second of two steps; parallel=yes has one");
  check(!scaled || !without,
        "block: feed_forward_divisor and feed_forward_residual need a feed-forward; feed_forward=none has nothing to "
        "scale");
  check(o.feed_forward_divisor.initial != 0,
        "block: feed_forward_divisor divides the feed-forward's output and cannot be or start at 0; 1 changes nothing");
  return o;
}

std::unique_ptr<nn::Module> make_norm(const BlockOptions& o, const Spec& own, bool of_attention) {
  return nn::make_normalization(is_same(own) ? o.normalization : own,
                                {o.width, o.normalization_bias, o.causal, of_attention});
}

}  // namespace

BlockNumber::BlockNumber(const LearnableNumber& number) : fixed_(number.initial) {
  if (number.learned) parameter = nn::Parameter(Shape{1}, nn::constant(number.initial));
}
Tensor BlockNumber::times(const Tensor& x) const {
  if (parameter.value) return x * parameter.value;
  return fixed_ == 1 ? x : x * fixed_;
}
Tensor BlockNumber::divide(const Tensor& x) const {
  if (parameter.value) return x / parameter.value;
  return fixed_ == 1 ? x : x / fixed_;
}

Block::Block(const BlockOptions& o)
    : dropout_(checked(o).dropout),
      post_(o.norm_place == "post"),
      parallel_(o.parallel),
      attention_{make_norm(o, o.attention_normalization, true),
                 nn::make_attention(o.attention, {.width = o.width,
                                                  .heads = o.heads,
                                                  .key_heads = o.key_heads,
                                                  .head_size = o.head_size,
                                                  .causal = o.causal,
                                                  .bias = o.attention_bias.value_or(o.bias),
                                                  .query_key_bias = o.query_key_bias,
                                                  .layers = o.layers,
                                                  .initial_weights = o.initial_weights,
                                                  .context = o.context,
                                                  .position = o.position}),
                 nn::Dropout(o.dropout),
                 BlockNumber(o.residual_gain),
                 BlockNumber({1}),
                 BlockNumber({1})},
      feed_forward_{nullptr,
                    nullptr,
                    nn::Dropout(o.dropout),
                    BlockNumber(o.residual_gain),
                    BlockNumber(o.feed_forward_divisor),
                    BlockNumber(o.feed_forward_residual)} {
  feed_forward_.layer = nn::make_feed_forward(o.feed_forward, {.width = o.width,
                                                               .d_ff = o.d_ff,
                                                               .bias = o.feed_forward_bias.value_or(o.bias),
                                                               .layers = o.layers,
                                                               .initial_weights = o.initial_weights,
                                                               .shared_activation = o.shared_activation});
  if (feed_forward_.layer->adds_nothing()) {
    feed_forward_.layer.reset();
    return;
  }
  if (!parallel_) feed_forward_.norm = make_norm(o, o.feed_forward_normalization, false);
}

Tensor Block::add(const Tensor& x, const Tensor& input, Branch& branch, nn::Pass& pass) const {
  const bool dropping = dropout_ > 0 && pass.training;
  const auto joined = [&] {
    if (!dropping && branch.plain()) return branch.layer->onto(input, x, pass);
    const Tensor read = branch.dropout((*branch.layer)(input, pass), pass);
    return branch.residual.times(x) + branch.divisor.divide(branch.gain.times(read));
  };
  return hook(branch.layer->path(), "residual", joined());
}
Tensor Block::step(const Tensor& before, Branch& branch, nn::Pass& pass) const {
  const Tensor x = hook(branch.layer->path(), "stream", before);
  return post_ ? (*branch.norm)(add(x, x, branch, pass), pass) : add(x, (*branch.norm)(x, pass), branch, pass);
}
Tensor Block::forward(const Tensor& x, nn::Pass& pass) {
  if (!feed_forward_.layer) return step(x, attention_, pass);
  if (!parallel_) return step(step(x, attention_, pass), feed_forward_, pass);
  const Tensor before = hook(attention_.layer->path(), "stream", x), input = (*attention_.norm)(before, pass);
  const Tensor between = hook(feed_forward_.layer->path(), "stream", add(before, input, attention_, pass));
  return add(between, input, feed_forward_, pass);
}
void Block::visit(nn::Visitor& v) {
  v(parallel_ ? "norm" : "attention_norm", attention_.norm);
  v("attention", attention_.layer);
  v("attention_dropout", attention_.dropout);
  v("attention_gain", attention_.gain.parameter);
  if (!feed_forward_.layer) return;
  v("feed_forward_norm", feed_forward_.norm);
  v("feed_forward", feed_forward_.layer);
  v("feed_forward_dropout", feed_forward_.dropout);
  v("feed_forward_gain", feed_forward_.gain.parameter);
  v("feed_forward_divisor", feed_forward_.divisor.parameter);
  v("feed_forward_residual", feed_forward_.residual.parameter);
}

}  // namespace orrery::models
