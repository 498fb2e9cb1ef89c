// Hooks for named intermediate values of a running model. An observer reads them and does not
// change results; a replacement changes them.
//
//   Hooks hooks({"blocks.*.attention.weights"}, [](const std::string& name, const Tensor& value) { ... });
//   model(tokens, pass);         // calls the function with each matching value when it is computed
//   hooks.check_all_matched();   // throws if a name or pattern matched no value; suggests the nearest
//
//   Hooks ablated({"blocks.0.attention.head_output"}, Hooks::Replace{[](const std::string&, const Tensor& value) {
//                   return value * without_head_2;
//                 }});
//
// A name is the module path, a dot and the name of the value. In a pattern, * matches any
// characters, ? matches one, *([0-9]) matches digits.
//   every module            input, output
//   an attention            query, key, value (B, T, H, D) as they enter the scores; scores, 0 where masked, weights
//                           and visible, 1 or 0 (B, H, Tq, Tk + N) with N persistent slots; with slots(split=yes)
//                           scores are the context's, and slot_scores the slots'; head_output (B, T, H, D);
//                           per row of weights (B, H, T): row_sum row_entropy row_zero_fraction row_max, NaN
//                           where no key is visible (reduced in nn/diagnostics/diagnostics.h)
//                           to read, on the way to the weights: score_query and score_key, whose products the score
//                           sums; score_scale, score_position, score_cap (0: none); weight_largest, weight_function,
//                           weight_span, weight_factor, weight_total. w = function span factor / total of a visible
//                           key, as far as the attention has them; of a whole row: no function. slot_...: split slots
//   its span                span in tokens: the z of the kernels, z + 1 for the z of nn/attentions/base/span.h
//   a dynamic normalization saturation, the fraction of its inputs with |alpha x| > 2, padding included
//   a feed-forward          pre_activation and hidden, before and after its activation: (B, T, N), or (B, H, T, N)
//                           for slots that softmax attends to
//   a sublayer of a block   residual, the residual stream after its output is added
//   a model                 embedding, the input of the first block; logits
// TransformerLens's names of these values: models/hook_names.h.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tensor/tensor.h"

namespace orrery {

class Hooks {  // active on the thread that made it, until destroyed; the oldest runs first
 public:
  using Observer = std::function<void(const std::string& name, const Tensor& value)>;
  // Gets the value with its graph and returns a replacement of the same shape, dtype and device, else
  // it throws; undefined keeps the value. Scores, weights and hidden values then are not fused.
  struct Replace {
    std::function<Tensor(const std::string& name, const Tensor& value)> with;
  };
  // No patterns: every value that needs no extra computation.
  Hooks(std::vector<std::string> patterns, Observer observer);
  Hooks(std::vector<std::string> patterns, Replace replacement);
  ~Hooks();
  Hooks(const Hooks&) = delete;
  Hooks& operator=(const Hooks&) = delete;
  void check_all_matched() const;
  const std::set<std::string>& names() const { return names_; }  // every name passed to hook(), matched or not

 private:
  friend Tensor hook(std::string_view path, std::string_view name, const Tensor& x);
  friend bool is_hooked(std::string_view path, std::string_view name);
  friend bool may_be_hooked(std::string_view path, std::string_view name);
  friend bool has_replacement(std::string_view path, std::string_view name);
  bool matches(const std::string& name) const;
  Tensor apply(const std::string& name, const Tensor& value);

  std::vector<std::string> patterns_;
  Observer observer_;
  Replace replacement_;
  std::set<std::string> names_;
};

// Passes x to the hooks that match path.name; returns x or its replacement.
Tensor hook(std::string_view path, std::string_view name, const Tensor& x);
// Returns true if a hook matches path.name. A value that needs extra work, such as the weights of a
// fused attention, is computed only then.
bool is_hooked(std::string_view path, std::string_view name);
// As is_hooked, for a value that may not exist: it is not among the names that an error suggests.
bool may_be_hooked(std::string_view path, std::string_view name);
// Returns true if a hook may replace the value.
bool has_replacement(std::string_view path, std::string_view name);

}  // namespace orrery
