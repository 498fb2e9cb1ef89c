#include "models/architectures/masks.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "engine/types/format.h"
#include "engine/types/usage_error.h"
#include "models/model.h"
#include "nn/attentions/base/attention.h"
#include "nn/attentions/base/span.h"

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
// An attention itself hides keys besides its mask: the own key, and keys beyond its longest span.
struct Narrowing {
  AttentionMask mask = {};
  bool has_slots = false;
  std::string words = {};  // " under span=fixed(4)"
};
Narrowing narrowing_of(const AnySettings& model, std::string_view mask_key) {
  const std::vector<Setting> members = model.members();
  const auto attention = [&](std::string_view key) { return *std::get<Spec*>(find_setting(members, key)->value); };
  const Spec given = mask_key == "decoder_mask" ? attention("decoder_attention") : parse_spec("same");
  Spec span = parse_spec("none");
  Narrowing all;
  for (const auto& [key, value] : nn::resolved_attention(given.name == "same" ? attention("attention") : given).items) {
    if (key == "attend_to_self") all.mask.attend_to_self = value.name != "no";
    if (key == "persistent") all.has_slots = value.name != "none";
    if (key == "span") span = value;
    if ((key == "attend_to_self" && value.name == "no") || (key == "span" && value.name != "none"))
      all.words += text(all.words.empty() ? " under " : " and ", key, "=", value);
  }
  if (span.name == "none") return all;
  AttentionOptions options{.mask = all.mask};
  nn::Span(span, 1, 1, 0).set_window_and_ramp(options);
  all.mask = options.mask;
  return all;
}

constexpr int64_t far = 1 << 20, far_tokens = 256;  // positions of a long text

// Returns the mask with its defaults, with each setting in turn at both ends of its range and at values between, with
// all at the same of these, and with the others.
std::vector<std::string> specs_to_check(const std::string& name) {
  std::vector<std::string> all = {name}, together;
  for (const Setting& setting : nn::masks().at(name).ranges()) {
    const auto [low, high] = std::pair(setting.limits.low, setting.limits.high);
    std::vector<std::string> values = {"no", "yes"};
    if (std::holds_alternative<int64_t*>(setting.value)) {
      values.clear();
      for (const double x : {low, low + 1, 5., 64., 100., 128., high})
        if (low <= x && x <= high) values.push_back(text(static_cast<int64_t>(x)));
    } else if (std::holds_alternative<double*>(setting.value)) {
      values = {print_number(low), print_number((low + high) / 2), print_number(high)};
    } else if (!std::holds_alternative<bool*>(setting.value)) {
      values = setting.limits.choices;
    }
    for (size_t n = 0; n < values.size(); ++n) {
      const std::string item = setting.key + "=" + values[n];
      all.push_back(name + "(" + item + ")");
      if (n == together.size()) together.emplace_back();
      together[n] += (together[n].empty() ? "" : ", ") + item;
    }
  }
  for (const std::string& items : together) all.push_back(name + "(" + items + ")");
  std::vector<std::string> once;
  for (const std::string& spec : all)
    if (std::ranges::find(once, spec) == once.end()) once.push_back(spec);
  return once;
}

// Returns the first pair for which coverage, later or band of a formula contradict it; empty: none. Tried are the
// queries and keys from 0 on, and some at a far position.
std::string contradiction(const nn::MaskFormula& formula, int64_t tokens) {
  const auto sees = [&](int64_t i, int64_t j) {
    return text("query ", i, formula.visible(i, j) ? " attends to key " : " does not attend to key ", j);
  };
  const nn::MaskFacts facts = formula.facts();
  for (const auto& [i0, j0] : {std::pair<int64_t, int64_t>(0, 0), {far, far}, {far, 0}}) {
    const int64_t i_end = i0 + (i0 == 0 ? tokens : far_tokens), j_end = j0 + i_end - i0;
    for (const int64_t side : {1, 8, 64, 256})
      for (int64_t i = i0; i < i_end; i += side)
        for (int64_t j = j0; j < j_end; j += side) {
          const auto stated = formula.coverage({i, i + side}, {j, j + side});
          if (!stated || *stated == Coverage::some) continue;
          const bool all = *stated == Coverage::all;
          for (int64_t pair = 0; pair < side * side; ++pair)
            if (const int64_t a = i + pair / side, b = j + pair % side; formula.visible(a, b) != all)
              return text("coverage of queries [", i, ", ", i + side, ") and keys [", j, ", ", j + side, ") is ",
                          all ? "all" : "none", ", but ", sees(a, b));
        }
    for (int64_t i = i0; (facts.later || facts.band) && i < i_end; ++i)
      for (int64_t j = j0; j < j_end; ++j) {
        const bool visible = formula.visible(i, j);
        if (visible && facts.later && i >= *facts.later && j > i)
          return text("later() is ", *facts.later, ", but ", sees(i, j));
        if (!facts.band) continue;
        const auto& [causal, window] = *facts.band;
        const bool in_band = !(causal && j > i) && (window == 0 || std::abs(i - j) < window);
        if (visible != in_band) return text("band() ", in_band ? "has" : "lacks", " a pair, but ", sees(i, j));
      }
  }
  return {};
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

MaskCheck check_mask(const std::string& name) {
  constexpr int64_t with_defaults = 2048, with_others = 512;
  MaskCheck all;
  for (const std::string& spec : specs_to_check(name)) {
    std::unique_ptr<nn::MaskFormula> formula;
    try {
      formula = make_from(nn::masks(), parse_spec(spec));
    } catch (const Error&) {
      continue;  // settings that do not fit together
    }
    all.contradiction = contradiction(*formula, all.specs.empty() ? with_defaults : with_others);
    if (!all.contradiction.empty()) return {.contradiction = text(spec, ": ", all.contradiction)};
    all.specs.push_back(spec);
  }
  all.positions = text("the first ", with_commas(with_defaults), ", with other settings ", with_others, ", and ",
                       far_tokens, " from ", with_commas(far), " on");
  return all;
}

std::vector<std::string> mask_notes(const AnySettings& model) {
  constexpr int64_t enough = 1 << 25;  // pairs: less than a second, all positions of any mask that hides few keys
  const int64_t cached = integer(model, "cache_length"), tokens = tokens_of(model) + cached;
  std::vector<std::string> notes;
  for (const auto& [key, expression] : expressions(model)) {
    const Narrowing by_attention = narrowing_of(model, key);
    if (by_attention.has_slots) continue;  // every query sees them
    const nn::NamedMask mask(expression);
    const bool own = by_attention.mask.attend_to_self;
    const int64_t window = by_attention.mask.window, reach = window > 0 ? window : tokens;
    const int64_t later = mask.facts().later.value_or(tokens);
    int64_t i = 0, tried = 0, hidden = 0, seen = 0;  // seen: a key of the query before, often visible to this one, too
    bool only_first = true;
    for (; i < tokens && tried < enough; ++i) {
      const auto sees = [&](int64_t j) {
        return ++tried, (own || j != i) && std::abs(i - j) < reach && mask.visible(i, j);
      };
      if (sees(seen)) continue;
      const int64_t last = i < later ? std::min(tokens, i + reach) : i + 1, first = std::max<int64_t>(0, i + 1 - reach);
      seen = i;
      while (seen >= first && !sees(seen)) --seen;
      if (seen < first)
        for (seen = i + 1; seen < last && !sees(seen);) ++seen;
      if (seen >= first && seen < last) continue;
      ++hidden, seen = 0, only_first &= i == 0;
    }
    // Without its own key the first token sees none under every causal mask.
    if (hidden == 0 || (only_first && !own)) continue;
    notes.push_back(text(key, "=", expression, by_attention.words, " hides every key from ", with_commas(hidden),
                         " of the ", i < tokens || cached > 0 ? "first " : "", with_commas(i), " positions",
                         mask.facts().differs_by_layer ? " in the first layer" : "",
                         ", where attention sees no token"));
  }
  return notes;
}

}  // namespace orrery::models
