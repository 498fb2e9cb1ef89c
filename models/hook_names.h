// Aliases of orrery's hook names (engine/autograd/hooks.h): former names (read, hidden_before,
// row_zero_share and row_maximum), and the names of TransformerLens,
// https://github.com/TransformerLensOrg/TransformerLens. Its studies get equal values here:
//
//   Hooks hooks(hook_patterns({"blocks.*.attn.hook_pattern"}), observer);       // blocks.*([0-9]).attention.weights
//
//   TransformerLens                 orrery                               shape
//   hook_embed                      token_embedding.output               (B, T, C)
//   blocks.0.hook_resid_pre         blocks.0.input                       (B, T, C)
//   blocks.0.hook_resid_mid         blocks.0.attention.residual          (B, T, C)
//   blocks.0.hook_resid_post        blocks.0.output                      (B, T, C)
//   blocks.0.ln1.hook_normalized    blocks.0.attention_norm.output       (B, T, C)     1
//   blocks.0.ln2.hook_normalized    blocks.0.feed_forward_norm.output    (B, T, C)     1
//   ln_final.hook_normalized        norm.output                          (B, T, C)     1
//   blocks.0.attn.hook_q            blocks.0.attention.query             (B, T, H, D)  2
//   blocks.0.attn.hook_k            blocks.0.attention.key               (B, T, H, D)  2
//   blocks.0.attn.hook_rot_q        blocks.0.attention.query             (B, T, H, D)  2
//   blocks.0.attn.hook_rot_k        blocks.0.attention.key               (B, T, H, D)  2
//   blocks.0.attn.hook_v            blocks.0.attention.value             (B, T, H, D)
//   blocks.0.attn.hook_attn_scores  blocks.0.attention.scores            (B, H, T, T)  3
//   blocks.0.attn.hook_pattern      blocks.0.attention.weights           (B, H, T, T)
//   blocks.0.attn.hook_z            blocks.0.attention.head_output       (B, T, H, D)
//   blocks.0.hook_attn_out          blocks.0.attention.output            (B, T, C)
//   blocks.0.mlp.hook_pre           blocks.0.feed_forward.pre_activation (B, T, S)     4
//   blocks.0.mlp.hook_post          blocks.0.feed_forward.hidden         (B, T, S)
//   blocks.0.hook_mlp_out           blocks.0.feed_forward.output         (B, T, C)
// 1: layer normalization that is not folded into the following weights. Its RMS normalization, and
//    folded ones, show the value before weight and bias.
// 2: the value that enters the scores. With rotary positions that is hook_rot_q; TransformerLens's
//    hook_q, before the rotation, has no value here.
// 3: masked scores are 0 here, minus infinity there.
// 4: for a gated feed-forward the gate's value.
//
// Not available: hook_pos_embed (positions appear only added to embeddings), hook_scale,
// attn.hook_result, hook_q_input and similar ones, and all names of encoder-decoders.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/autograd/hooks.h"

namespace orrery::models {

// Returns orrery's names for one of TransformerLens; several if its * or ? matches several. A * for
// the layer matches digits: blocks.*.hook_resid_pre is one value per block. Other names, except
// former ones, are returned unchanged: check_all_matched reports names without a value.
// Throws for an unknown name with hook, attn, mlp, ln1, ln2 or ln_final; offers the nearest.
std::vector<std::string> resolve_hook_names(const std::string& pattern);
// Returns the names for all patterns, in order.
std::vector<std::string> hook_patterns(std::span<const std::string> patterns);
inline std::vector<std::string> hook_patterns(const std::vector<std::string>& patterns) {
  return hook_patterns(std::span<const std::string>(patterns));
}
// Hooks::check_all_matched for hooks of hook_patterns(patterns): the error has the name as it was given.
void check_all_matched(const Hooks& hooks, const std::vector<std::string>& patterns);

// Returns a name or pattern with the current name of its value in place of a former one:
// "blocks.*.attention.head_output" for "blocks.*.attention.read". A pattern of a former name matches
// the current one too: "*.@(hidden_*|pre_activation)" for "*.hidden_*".
std::string current_hook_name(const std::string& pattern);

// The table: {"attn.hook_q", "attention.query"}; entries of blocks have no blocks.N in front.
struct HookAlias {
  std::string source, target;
  bool in_block;
};
std::span<const HookAlias> hook_aliases();

}  // namespace orrery::models
