#include "models/hook_names.h"

#include <fnmatch.h>

#include <algorithm>
#include <set>

#include "engine/settings/registry.h"
#include "engine/types/check.h"
#include "models/former_names.h"

namespace orrery::models {
namespace {

using Words = std::vector<std::string>;

Words words_of(const std::string& name) {
  Words words(1);
  for (const char c : name)
    if (c == '.')
      words.emplace_back();
    else
      words.back() += c;
  return words;
}

bool matches(const std::string& pattern, const std::string& word) {
  return ::fnmatch(pattern.c_str(), word.c_str(), 0) == 0;
}

// Compares the last words of `source` with those of the pattern from `first` on.
bool suffix_matches(const Words& pattern, size_t first, const Words& source) {
  const size_t count = pattern.size() - first;
  return count <= source.size() && std::equal(pattern.begin() + static_cast<std::ptrdiff_t>(first), pattern.end(),
                                              source.end() - static_cast<std::ptrdiff_t>(count), matches);
}

// Returns the layer in a pattern that matches the alias, "*" for any layer; empty: no match.
std::string matched_layer(const Words& pattern, const HookAlias& alias) {
  const std::string any = "*";
  Words source = words_of(alias.source);
  if (alias.in_block) {
    if (pattern.size() == source.size() + 2 && matches(pattern[0], "blocks") && suffix_matches(pattern, 2, source))
      return pattern[1];
    source.insert(source.begin(), {"blocks", any});
  } else if (pattern.size() == source.size() && suffix_matches(pattern, 0, source)) {
    return any;
  }
  // A star at the beginning matches any number of words.
  const bool open = pattern[0] == any && pattern.size() > 1 && pattern.size() - 1 < source.size();
  if (open && suffix_matches(pattern, 1, source)) return any;
  const bool half_open = pattern[0].size() > 1 && pattern[0].starts_with(any) && pattern.size() < source.size();
  return half_open && suffix_matches(pattern, 0, source) ? any : "";
}

bool looks_like_source(const Words& pattern) {
  static const std::set<std::string> parts = {"attn", "mlp", "ln1", "ln2", "ln_final"};
  return std::any_of(pattern.begin(), pattern.end(), [](const std::string& word) {
    return parts.contains(word) || word.find("hook") != std::string::npos;
  });
}

std::string full_source(const HookAlias& alias, const std::string& layer) {
  return alias.in_block ? "blocks." + layer + "." + alias.source : alias.source;
}
std::string full_target(const HookAlias& alias, const std::string& layer) {
  if (!alias.in_block) return alias.target;
  std::string digits;  // their star matches a layer's number; a plain star in our names would match dots too
  for (const char c : layer) digits += c == '*' ? "*([0-9])" : std::string(1, c);
  return "blocks." + digits + "." + alias.target;
}

[[noreturn]] void fail_unknown_name(const std::string& pattern, const Words& words) {
  const std::string layer = words.size() > 2 && words[0] == "blocks" ? words[1] : "0";
  Words known;
  for (const HookAlias& alias : hook_aliases()) known.push_back(full_source(alias, layer));
  const std::string near = nearest(pattern, known);
  std::string meant;
  for (const HookAlias& alias : hook_aliases())
    if (full_source(alias, layer) == near)
      meant = alias.in_block ? text("blocks.", layer, ".", alias.target) : alias.target;
  fail("hooks: TransformerLens's '", pattern, "' is not available here; ",
       near.empty() ? "" : text("did you mean '", near, "' (", meant, ")? "), "available: ", join(known));
}

}  // namespace

std::span<const HookAlias> hook_aliases() {
  static const HookAlias all[] = {
      {"hook_embed", "token_embedding.output", false},
      {"hook_resid_pre", "input", true},
      {"ln1.hook_normalized", "attention_norm.output", true},
      {"attn.hook_q", "attention.query", true},
      {"attn.hook_k", "attention.key", true},
      {"attn.hook_v", "attention.value", true},
      {"attn.hook_rot_q", "attention.query", true},
      {"attn.hook_rot_k", "attention.key", true},
      {"attn.hook_attn_scores", "attention.scores", true},
      {"attn.hook_pattern", "attention.weights", true},
      {"attn.hook_z", "attention.head_output", true},
      {"hook_attn_out", "attention.output", true},
      {"hook_resid_mid", "attention.residual", true},
      {"ln2.hook_normalized", "feed_forward_norm.output", true},
      {"mlp.hook_pre", "feed_forward.pre_activation", true},
      {"mlp.hook_post", "feed_forward.hidden", true},
      {"hook_mlp_out", "feed_forward.output", true},
      {"hook_resid_post", "output", true},
      {"ln_final.hook_normalized", "norm.output", false},
  };
  return all;
}

std::string current_hook_name(const std::string& pattern) {
  static constexpr FormerName all[] = {{"head_output", "read"},
                                       {"pre_activation", "hidden_before"},
                                       {"row_zero_fraction", "row_zero_share"},
                                       {"row_max", "row_maximum"}};
  const size_t last = pattern.rfind('.') + 1;  // 0 without a dot
  const std::string word = pattern.substr(last);
  std::string more;
  for (const auto& [current, former] : all) {
    if (word == former) return pattern.substr(0, last) + std::string(current);
    // A star at the beginning matches any module path as well.
    if (matches(word, std::string(former)) && !matches(word, std::string(current)))
      more += text("|", word.starts_with('*') ? "*" : "", current);
  }
  return more.empty() ? pattern : text(pattern.substr(0, last), "@(", word, more, ")");
}

std::vector<std::string> resolve_hook_names(const std::string& pattern) {
  const Words words = words_of(pattern);
  if (!looks_like_source(words)) return {current_hook_name(pattern)};
  std::vector<std::string> targets;
  for (const HookAlias& alias : hook_aliases())
    if (const std::string layer = matched_layer(words, alias); !layer.empty())
      if (std::string name = full_target(alias, layer);
          std::find(targets.begin(), targets.end(), name) == targets.end())
        targets.push_back(std::move(name));
  if (targets.empty()) fail_unknown_name(pattern, words);
  return targets;
}

std::vector<std::string> hook_patterns(std::span<const std::string> patterns) {
  std::vector<std::string> all;
  for (const std::string& pattern : patterns)
    for (std::string& name : resolve_hook_names(pattern)) all.push_back(std::move(name));
  return all;
}

void check_all_matched(const Hooks& hooks, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns)
    for (const std::string& target : resolve_hook_names(pattern)) {
      const auto is_match = [&](const std::string& name) {
        return ::fnmatch(target.c_str(), name.c_str(), FNM_EXTMATCH) == 0;
      };
      if (target != pattern && std::ranges::none_of(hooks.names(), is_match))
        fail("hooks: no value matches '", pattern, "'; available: ",
             join(std::vector(hooks.names().begin(), hooks.names().end())));
    }
  hooks.check_all_matched();
}

}  // namespace orrery::models
