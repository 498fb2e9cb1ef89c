// Padding in hook values (engine/autograd/hooks.h). Tokens of sequence b from position n_b on are
// padding, n = pass.lengths; for keys and values of cross attention n = pass.encoder_lengths.
// Metrics and signal propagation exclude padding: a mean is over the tokens of all sequences,
//   mean f = (1 / sum_b n_b) sum_b sum_(t < n_b) f(x_bt)
// and so are the maximum, the minimum and conditions on all tokens of a batch.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nn/base/module.h"

namespace orrery::models {

class Padding {
 public:
  // `pass` is the forward pass in which modules of `root` show values; null: no padding.
  Padding(nn::Module& root, const nn::ForwardPass* pass);
  // Returns n_b for each sequence of a hook value; empty if it has no padding.
  std::vector<int64_t> lengths(const std::string& name, const Tensor& value) const;

 private:
  bool is_of_encoder(const std::string& name) const;
  std::map<std::string, nn::Module*> modules_;
  const nn::ForwardPass* pass_;
};

// Returns the value without its padding, joined into one sequence: (1, sum n, ...) for (B, T, ...),
// (1, H, sum n, ...) for (B, H, T, ...). With empty lengths, returns the value itself.
Tensor without_padding(const std::string& name, const Tensor& value, const std::vector<int64_t>& lengths);

}  // namespace orrery::models
