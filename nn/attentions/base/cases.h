// Gradient cases of an attention under a position, with losses, or while weights are dropped;
// nn/attentions/base/attention.h has the short form for specs alone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace orrery::nn {

struct AttentionCase {
  std::string spec;
  std::string position = "none";         // what it learns is differentiated with the layer's parameters
  std::vector<std::string> losses = {};  // that the pass wants; they are part of the result
  bool dropout = false;                  // as the spec says, with a fixed key; otherwise nothing is dropped
  bool full = true;                      // not only causal; length=row_index needs no
  bool cross = false;                    // cross attention as well
};

// One case for each condition (sizes, masks, padding), all under the name of `family`: "attention", or "position".
bool add_attention_case(std::string_view family, std::string_view name, const AttentionCase& settings);

}  // namespace orrery::nn
