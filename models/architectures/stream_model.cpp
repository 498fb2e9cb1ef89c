#include "models/architectures/stream_model.h"

#include <algorithm>

#include "engine/autograd/hooks.h"
#include "models/settings/at_least_one.h"

namespace orrery::models {
namespace {

void check_span(const Spec& attention) {
  const auto span = std::find_if(attention.items.begin(), attention.items.end(),
                                 [](const Spec::Item& item) { return item.key == "span"; });
  check(span != attention.items.end() && span->value.name != "none", "stream: attention=", attention,
        " has no span, which a stream requires, since it has no beginning; add one, as in ", attention.name,
        "(span=adaptive_span(256)) or ", attention.name, "(span=fixed(256))");
}

StreamSettings checked(StreamSettings s) {
  check_at_least_one("stream", {{"layers", s.layers},
                                {"heads", s.heads},
                                {"width", s.width},
                                {"context", s.context},
                                {"cache_length", s.cache_length}});
  check(s.vocabulary >= 1, "stream: the vocabulary has ", s.vocabulary, " tokens; at least 1 is needed");
  check_span(s.attention);
  if (s.d_ff == 0) s.d_ff = product_of_sizes("stream: d_ff", {4, s.width});
  return s;
}

std::shared_ptr<const nn::NamedMask> mask_of(const StreamSettings& s) {
  return causal_mask("stream: mask", s.mask, s.context + s.cache_length);
}

}  // namespace

StreamModel::StreamModel(const StreamSettings& settings)
    : settings_(checked(settings)),
      embedding_(settings_.vocabulary, settings_.width,
                 nn::initial_weights(settings_.initialization, settings_.width).embedding()),
      embedding_scale_(embedding_scale(settings_.embedding_scale, settings_.width, "stream")),
      position_(nn::make_position(
          settings_.position,
          {.context = settings_.cache_length + 1, .width = settings_.width, .heads = settings_.heads})),
      embedding_dropout_(settings_.dropout),
      head_(settings_.width, settings_.vocabulary, {}) {
  const StreamSettings& s = settings_;
  check(position_->acts_on_scores() || s.position.name == "none", "stream: position=", s.position,
        " counts from the beginning of a text, which a stream does not have; use relative, alibi or none");
  const nn::InitialWeights weights = nn::initial_weights(s.initialization, s.width);
  head_.weight.initialization = weights.head(s.width, s.vocabulary);
  head_.weight.is_lookup_table = true;
  const Spec default_norm = s.norm_place == "post" ? parse_spec("none") : s.normalization,
             last = s.final_normalization.name == "same" ? default_norm : s.final_normalization;
  if (last.name != "none") norm_ = nn::make_normalization(last, {s.width, true, true});
  BlockOptions options = block_options(s, *position_, attention_activation_);
  set_own_biases(options, s);
  options.context = s.cache_length;
  const auto mask = mask_of(s);
  for (int64_t i = 0; i < s.layers; ++i) {
    options.mask = mask_of_layer(mask, s.mask, s.context + s.cache_length, i);
    blocks_.push_back(std::make_unique<Block>(options));
  }
  nn::name_paths(*this);
}

void StreamModel::check_early(const StreamSettings& settings) { mask_of(settings); }

Tensor StreamModel::forward(const Tensor& tokens, nn::ForwardPass& pass) {
  check(tokens.shape().rank() == 2 && tokens.size(1) >= 1, "stream: tokens of shape ", tokens.shape(),
        "; they must be (batch, time)");
  check(!pass.cache || pass.cache->holds_states || !is_recording(),
        "stream: a cache of keys cannot be used while gradients are recorded; use one of states, or run under NoGrad");
  Tensor x = hook(path(), "embedding", embedding_dropout_(embedding_scale_.times(embedding_(tokens, pass)), pass));
  for (const auto& block : blocks_) x = (*block)(x, pass);
  if (pass.cache) pass.cache->length += tokens.size(1);
  return hook(path(), "logits", head_(normalized(x, pass), pass));
}

void StreamModel::visit(nn::Visitor& v) {
  v("token_embedding", embedding_);
  v("embedding_scale", embedding_scale_.parameter);
  v("position", position_);
  v("embedding_dropout", embedding_dropout_);
  for (size_t i = 0; i < blocks_.size(); ++i) v("blocks." + std::to_string(i), blocks_[i]);
  v("attention_activation", attention_activation_);
  v("norm", norm_);
  v("head", head_);
}

REGISTER_MODEL(StreamModel);

}  // namespace orrery::models
