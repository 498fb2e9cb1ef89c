// Padding in what a model shows (engine/autograd/hooks.h).  Of sequence b the tokens from number n_b on are padding,
// n = pass.lengths, for keys and values of a cross attention pass.memory_lengths.  No figure and no number of the probe
// counts them: a mean is over the tokens of all sequences, whatever they are padded to,
//   mean f = (1 / sum_b n_b) sum_b sum_(t < n_b) f(x_bt)
// and so are the largest, the smallest and what "every token" of a batch does.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nn/base/module.h"

namespace orrery::models {

class Padding {
 public:
  // `pass` is the one that the modules of `root` run in while they show their values; null: nothing is padded.
  Padding(nn::Module& root, const nn::Pass* pass);
  // n_b for each sequence of a value that is being shown; empty: the value has no padding.
  std::vector<int64_t> lengths(const std::string& name, const Tensor& value) const;

 private:
  bool is_of_memory(const std::string& name) const;
  std::map<std::string, nn::Module*> modules_;
  const nn::Pass* pass_;
};

// The value without its padding, as if of one sequence: (1, sum n, ...) of (B, T, ...), (1, H, sum n, ...) of
// (B, H, T, ...).  With empty lengths the value itself.
Tensor without_padding(const std::string& name, const Tensor& value, const std::vector<int64_t>& lengths);

}  // namespace orrery::models
