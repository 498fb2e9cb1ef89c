// Gradient cases of an attention with a position, with losses, or with dropout. For specs alone
// there is add_attention_cases (nn/attentions/base/attention.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace orrery::nn {

struct AttentionCase {
  std::string spec;
  std::string position = "none";         // its parameters are differentiated with the layer's
  std::vector<std::string> losses = {};  // requested losses; they are part of the result
  bool dropout = false;                  // training mode with a fixed rng key, so the spec's dropout applies
  bool full = true;                      // full attention too; false for length=row_index
  bool cross = false;                    // cross attention as well
};

// Adds one case per condition (sizes, masks, padding) to `family`: "attention" or "position".
bool add_attention_case(std::string_view family, std::string_view name, const AttentionCase& settings);

}  // namespace orrery::nn
