// Settings that models built from blocks share.
#pragma once

#include <optional>
#include <string>

#include "engine/settings/config.h"

namespace orrery::models {

// Visits the settings for normalizations of one sublayer.
template <class V, class Settings>
void visit_own_normalizations(V& v, Settings& s) {
  v("attention_normalization", s.attention_normalization,
    "normalization of the attention sublayer; same: as normalization", name_of_family("normalization"));
  v("feed_forward_normalization", s.feed_forward_normalization,
    "normalization of the feed-forward sublayer; same: as normalization", name_of_family("normalization"));
}

// Visits the settings for biases of one sublayer, in addition to `bias`.
template <class V, class Settings>
void visit_own_biases(V& v, Settings& s) {
  v("attention_bias", s.attention_bias, "biases in attention; same: as bias; query_key: only in queries and keys",
    one_of({"same", "yes", "no", "query_key"}));
  v("feed_forward_bias", s.feed_forward_bias, "biases in feed-forwards; same: as bias", one_of({"same", "yes", "no"}));
}
// Returns nothing for same.
inline std::optional<bool> bias_override(const std::string& word) {
  return word == "same" ? std::nullopt : std::optional(word == "yes");
}

}  // namespace orrery::models
