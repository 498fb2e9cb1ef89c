// Settings that models built from blocks share.
#pragma once

#include <optional>
#include <string>

#include "engine/settings/config.h"
#include "models/architectures/masks.h"
#include "nn/layers/initial_weights.h"

namespace orrery::models {

// A model visits these in its own order, the order of its help and of its runs' settings.
void visit_size(auto& v, auto& s) {
  v.common("layers", s.layers, "number of blocks", between(1, 4096));
  v.common("heads", s.heads, "attention heads per block", between(1, 65536));
  v.common("width", s.width, "channels of the residual stream", between(1, 65536));
}
void visit_d_ff(auto& v, auto& s) {
  v("d_ff|inner", s.d_ff, "hidden channels of a feed-forward (0: 4 * width)", between(0, 262144));
}
void visit_attention(auto& v, auto& s) {
  v.common("attention", s.attention, "attention from `orrery list attention`; NAME or 'NAME(key=value, ...)'",
           name_of_family("attention"));
}
void visit_mask(auto& v, auto& s) { v("mask", s.mask, mask_help); }
void visit_feed_forward_and_normalization(auto& v, auto& s) {
  v.common("feed_forward", s.feed_forward, "feed-forward from `orrery list feed_forward`",
           name_of_family("feed_forward"));
  v.common("normalization", s.normalization,
           "normalization from `orrery list normalization`; before each sublayer, with norm_place=post after it",
           name_of_family("normalization"));
}
// Visits the settings for normalizations of one sublayer.
void visit_own_normalizations(auto& v, auto& s) {
  v("attention_normalization", s.attention_normalization,
    "normalization of the attention sublayer; same: as normalization", name_of_family("normalization"));
  v("feed_forward_normalization", s.feed_forward_normalization,
    "normalization of the feed-forward sublayer; same: as normalization", name_of_family("normalization"));
}
// Visits the settings for biases of one sublayer, in addition to `bias`.
void visit_own_biases(auto& v, auto& s) {
  v("attention_bias", s.attention_bias, "biases in attention; same: as bias; query_key: only in queries and keys",
    one_of({"same", "yes", "no", "query_key"}));
  v("feed_forward_bias", s.feed_forward_bias, "biases in feed-forwards; same: as bias", one_of({"same", "yes", "no"}));
}
void visit_final_normalization(auto& v, auto& s) {
  v("final_normalization", s.final_normalization, "normalization before the head; same: as in the blocks",
    name_of_family("normalization"));
}
void visit_norm_place(auto& v, auto& s) {
  v("norm_place", s.norm_place, "place of normalizations; pre: before each sublayer; post: after the residual addition",
    one_of({"pre", "post"}));
}
void visit_dropout(auto& v, auto& s) {
  v.common("dropout", s.dropout, "dropout rate of sublayer outputs and embeddings; 0: no dropout", fraction());
}
void visit_residual_gain(auto& v, auto& s) {
  v("residual_gain", s.residual_gain, "factor of a sublayer's output; learned(0): SkipInit", between(-1e6, 1e6));
}
void visit_initialization(auto& v, auto& s) {
  v("initialization|initial_std", s.initialization, nn::initialization_help, nn::initialization_names());
}

const Spec& final_normalization(const auto& s) {
  return s.final_normalization.name == "same" ? s.normalization : s.final_normalization;
}
// Returns nothing for same.
inline std::optional<bool> bias_override(const std::string& word) {
  return word == "same" ? std::nullopt : std::optional(word == "yes");
}

}  // namespace orrery::models
