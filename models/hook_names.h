// TransformerLens's names of values, https://github.com/TransformerLensOrg/TransformerLens, as other names of ours
// (engine/autograd/hooks.h), so that a study that was written for it finds the same numbers here:
//
//   Hooks hooks(hook_patterns({"blocks.*.attn.hook_pattern"}), observer);       // blocks.*([0-9]).attention.weights
//
//   theirs                          ours                                 shape
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
//   blocks.0.attn.hook_z            blocks.0.attention.read              (B, T, H, D)
//   blocks.0.hook_attn_out          blocks.0.attention.output            (B, T, C)
//   blocks.0.mlp.hook_pre           blocks.0.feed_forward.hidden_before  (B, T, S)     4
//   blocks.0.mlp.hook_post          blocks.0.feed_forward.hidden         (B, T, S)
//   blocks.0.hook_mlp_out           blocks.0.feed_forward.output         (B, T, C)
// 1: of layer normalization that theirs has not folded into the weights behind it.  Their RMS normalization, and what
//    is folded, show the value before its weight and bias.
// 2: what enters the scores.  With rotary positions that is their hook_rot_q; their hook_q, before it is turned, has no
//    value here.
// 3: masked ones are 0 here, minus infinity there.
// 4: of a gated one that of the gate.
//
// No name here: hook_pos_embed (positions are shown added to what they stand for), hook_scale, attn.hook_result,
// hook_q_input and its like, and all of encoder-decoders.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace orrery::models {

// Our name or pattern for theirs; more than one if * or ? of theirs stands for several.  A * for the layer stands for
// digits: blocks.*.hook_resid_pre is one value of each block.  What is no name of theirs
// comes back as it is: Hooks::check_seen tells of those that never arise.  An Error names the nearest of a name that
// looks like theirs (it has hook, attn, mlp, ln1, ln2 or ln_final in it) and is none.
std::vector<std::string> our_hook_names(const std::string& pattern);
// Of each, in order.
std::vector<std::string> hook_patterns(std::span<const std::string> patterns);
inline std::vector<std::string> hook_patterns(const std::vector<std::string>& patterns) {
  return hook_patterns(std::span<const std::string>(patterns));
}

// The table: {"attn.hook_q", "attention.query"}, what is of a block without blocks.N in front.
struct HookAlias {
  std::string theirs, ours;
  bool of_block;
};
std::span<const HookAlias> hook_aliases();

}  // namespace orrery::models
