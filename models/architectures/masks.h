// The masks of models: settings with an expression of nn/masks/base/mask.h.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/settings/any_settings.h"
#include "nn/masks/base/mask.h"

namespace orrery::models {

constexpr const char* mask_help =
    "keys that a token attends to: names from `orrery list mask`, joined by `and`, `or` and parentheses";

std::shared_ptr<const nn::NamedMask> named_mask(const std::string& expression, int64_t tokens, int64_t layer = 0);
// Returns the mask of a layer, given that of the first: the same, unless masks differ by layer.
std::shared_ptr<const nn::NamedMask> mask_of_layer(const std::shared_ptr<const nn::NamedMask>& first,
                                                   const std::string& expression, int64_t tokens, int64_t layer);
// Returns the mask of a model that predicts the next token. Throws if one of `tokens` tokens sees a later one, except
// among the first P, by prefix(P), if `allows_prefix`. Errors begin with `setting`: "gpt: mask".
std::shared_ptr<const nn::NamedMask> causal_mask(std::string_view setting, const std::string& expression,
                                                 int64_t tokens, bool allows_prefix = false);

// Gives the masks among the settings one form: each name with all its settings, and only the parentheses that are
// needed. A mask with an unknown name stays as it is.
void resolve_masks(const AnySettings& model);
// Returns the specs of which the masks consist, by setting. A mask with an unknown name has none.
std::vector<std::pair<std::string, Spec>> mask_specs(const AnySettings& model);
// Returns the number of first tokens that see later ones, which therefore bear no loss.
int64_t positions_without_loss(const AnySettings& model);
// Returns the bytes of all tables of a model with these layers.
int64_t bytes_of_masks(const AnySettings& model, int64_t layers);
struct MaskCheck {
  std::vector<std::string> specs = {};  // the mask with the settings that were tried, the defaults first
  std::string positions = {};           // "the first 2,048, ..."
  std::string contradiction = {};       // the first pair for which coverage(), later() or band() contradicts visible()
};
// Checks what a registered mask states of itself. Without a contradiction it gives the settings and positions tried.
MaskCheck check_mask(const std::string& name);
// Returns a message for each mask that, with the attention's own settings, hides every key from some queries.
std::vector<std::string> mask_notes(const AnySettings& model);

}  // namespace orrery::models
