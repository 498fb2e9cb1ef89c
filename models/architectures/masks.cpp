#include "models/architectures/masks.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "engine/types/format.h"
#include "engine/types/usage_error.h"
#include "models/model.h"

namespace orrery::models {
namespace {

int64_t integer(const AnySettings& model, std::string_view key, int64_t otherwise = 0) {
  const std::vector<Setting> members = model.members();
  const Setting* const found = find_setting(members, key);
  const auto* const number = found ? std::get_if<int64_t*>(&found->value) : nullptr;
  return number ? **number : otherwise;
}
// Returns the positions of a sequence: those of the context, or the patches of an image and the class token.
int64_t tokens_of(const AnySettings& model) {
  if (const int64_t context = integer(model, "context"); context > 0) return context;
  const int64_t side = integer(model, "image_size") / std::max<int64_t>(1, integer(model, "patch", 1));
  return side * side + 1;
}
// Returns the settings with a mask, and their expressions.
Assignments expressions(const AnySettings& model) {
  Assignments all;
  for (const Setting& setting : model.members())
    if (const auto* const text = std::get_if<std::string*>(&setting.value))
      if (setting.key == "mask" || setting.key == "decoder_mask") all.emplace_back(setting.key, **text);
  return all;
}

std::string resolved(const nn::NamedMask::Node& node) {
  if (node.formula) return print(nn::resolved(nn::masks(), node.spec));
  std::string all;
  for (const auto& part : node.parts) {
    const bool bare = part->formula || (part->is_and && !node.is_and);  // `and` binds tighter
    all += all.empty() ? "" : node.is_and ? " and " : " or ";
    all += bare ? resolved(*part) : "(" + resolved(*part) + ")";
  }
  return all;
}

void add_specs(const nn::NamedMask::Node& node, const std::string& key,
               std::vector<std::pair<std::string, Spec>>& specs) {
  if (node.formula) specs.emplace_back(key, node.spec);
  for (const auto& part : node.parts) add_specs(*part, key, specs);
}

// Calls take(key, root) for each mask, except those with an unknown name.
void each_known_mask(const AnySettings& model, const auto& take) {
  for (const auto& [key, expression] : expressions(model)) {
    std::optional<nn::NamedMask> mask;
    try {
      mask.emplace(expression);
    } catch (const Error&) {  // of a plug-in that is not loaded, or wrong: the model reports it
    }
    if (mask) take(key, mask->root());
  }
}

}  // namespace

void resolve_masks(const AnySettings& model) {
  each_known_mask(model, [&](const std::string& key, const nn::NamedMask::Node& root) {
    setting_of<std::string>(model, key) = resolved(root);
  });
}
std::vector<std::pair<std::string, Spec>> mask_specs(const AnySettings& model) {
  std::vector<std::pair<std::string, Spec>> specs;
  each_known_mask(model, [&](const std::string& key, const auto& root) { add_specs(root, key, specs); });
  return specs;
}

std::shared_ptr<const nn::NamedMask> named_mask(const std::string& expression, int64_t tokens, int64_t layer) {
  return std::make_shared<const nn::NamedMask>(expression, tokens, layer);
}

std::shared_ptr<const nn::NamedMask> mask_of_layer(const std::shared_ptr<const nn::NamedMask>& first,
                                                   const std::string& expression, int64_t tokens, int64_t layer) {
  return layer > 0 && first->facts().differs_by_layer ? named_mask(expression, tokens, layer) : first;
}

std::shared_ptr<const nn::NamedMask> causal_mask(std::string_view setting, const std::string& expression,
                                                 int64_t tokens, bool allows_prefix) {
  const auto mask = named_mask(expression, tokens);
  if (const std::optional<int64_t> later = mask->facts().later) {
    check_usage(*later == 0 || allows_prefix, setting, "=", expression, " lets the first ", *later,
                " tokens attend to each other, but this model predicts each of them; leave prefix out");
    check_usage(*later < tokens, setting, "=", expression, " has a prefix of ", *later,
                " tokens, which bear no loss, so it must be shorter than the context of ", tokens);
    return mask;
  }
  // No part says so: all pairs are tried. A mask that is not causal is found at its first tokens.
  for (int64_t i = 0; i < tokens; ++i)
    for (int64_t j = i + 1; j < tokens; ++j)
      check_usage(!mask->visible(i, j), setting, "=", expression, " lets token ", i, " attend to token ", j,
                  ", which it has to predict; use 'causal and (", expression, ")'");
  return mask;
}

int64_t positions_without_loss(const AnySettings& model) {
  for (const auto& [key, expression] : expressions(model))
    if (key == "mask" && integer(model, "vocabulary", -1) >= 0)
      return nn::NamedMask(expression).facts().later.value_or(0);
  return 0;
}

int64_t bytes_of_masks(const AnySettings& model, int64_t layers) {
  int64_t bytes = 0;
  for (const auto& [key, expression] : expressions(model))
    if (const nn::NamedMask mask(expression); mask.has_table())
      bytes += nn::mask_table_bytes(tokens_of(model)) * (mask.facts().differs_by_layer ? layers : 1);
  return bytes;
}

std::string mask_contradiction(const std::string& name) {
  constexpr int64_t tokens = 2048;
  const auto formula = make_from(nn::masks(), parse_spec(name));
  const auto sees = [&](int64_t i, int64_t j) {
    return text("query ", i, formula->visible(i, j) ? " attends to key " : " does not attend to key ", j);
  };
  for (const int64_t side : {1, 8, 64, 256})
    for (int64_t i = 0; i < tokens; i += side)
      for (int64_t j = 0; j < tokens; j += side) {
        const auto stated = formula->coverage({i, i + side}, {j, j + side});
        if (!stated || *stated == Coverage::some) continue;
        const bool all = *stated == Coverage::all;
        for (int64_t pair = 0; pair < side * side; ++pair)
          if (const int64_t a = i + pair / side, b = j + pair % side; formula->visible(a, b) != all)
            return text("coverage of queries [", i, ", ", i + side, ") and keys [", j, ", ", j + side, ") is ",
                        all ? "all" : "none", ", but ", sees(a, b));
      }
  for (int64_t i = formula->facts().later.value_or(tokens); i < tokens; ++i)
    for (int64_t j = i + 1; j < tokens; ++j)
      if (formula->visible(i, j)) return text("later() is ", *formula->facts().later, ", but ", sees(i, j));
  const auto band = formula->facts().band;
  for (int64_t i = 0; band && i < tokens; ++i)
    for (int64_t j = 0; j < tokens; ++j) {
      const bool in_band = !(band->causal && j > i) && (band->window == 0 || std::abs(i - j) < band->window);
      if (formula->visible(i, j) != in_band)
        return text("band() ", in_band ? "has" : "lacks", " a pair, but ", sees(i, j));
    }
  return {};
}

std::vector<std::string> mask_notes(const AnySettings& model) {
  constexpr int64_t enough = 4096;  // positions; a mask that hides everything takes the square of it
  const int64_t tokens = std::min(enough, tokens_of(model));
  std::vector<std::string> notes;
  for (const auto& [key, expression] : expressions(model)) {
    const nn::NamedMask mask(expression);
    const auto sees_any = [&](int64_t i) {
      for (int64_t j = i; j >= 0; --j)
        if (mask.visible(i, j)) return true;
      for (int64_t j = i + 1; j < tokens; ++j)
        if (mask.visible(i, j)) return true;
      return false;
    };
    int64_t hidden = 0;
    for (int64_t i = 0; i < tokens; ++i) hidden += !sees_any(i);
    if (hidden > 0)
      notes.push_back(text(key, "=", expression, " hides every key from ", hidden, " of the ",
                           tokens == enough ? "first " : "", with_commas(tokens),
                           " positions, where attention sees no token"));
  }
  return notes;
}

}  // namespace orrery::models
