// Looking at named intermediates while a model runs, without changing what it computes, and putting others in their
// place.
//
//   Hooks hooks({"blocks.*.attention.weights"}, [](const std::string& name, const Tensor& value) { ... });
//   model(tokens, pass);   // the function is called with each value that fits, as it arises
//   hooks.check_seen();    // an Error that names the nearest if a name or pattern fitted none
//
//   Hooks ablated({"blocks.0.attention.read"}, Hooks::Replace{[](const std::string&, const Tensor& value) {
//                   return value * without_head_2;
//                 }});
//
// A name is the path of the module and, after a dot, what it shows.  In a pattern * stands for any characters, ? for
// one, *([0-9]) for digits.
//   every module            input, output
//   an attention            query, key, value (B, T, H, D) as they enter the scores; scores, 0 where masked, weights
//                           and visible, 1 or 0 (B, H, Tq, Tk + N), with split slots slot_scores apart; read (B, T, H,
//                           D); of each row of weights, (B, H, T), row_sum row_entropy row_zero_share row_maximum, NaN
//                           where a query sees nothing (nn/diagnostics/diagnostics.h makes numbers of them)
//   its span                span, z + 1 in tokens (nn/attentions/base/span.h)
//   a dynamic normalization saturation, the share of its inputs with |alpha x| > 2, padding among them
//   a feed-forward          hidden_before and hidden, before and after its function: (B, T, N), of slots that softmax
//                           reads (B, H, T, N)
//   a sublayer of a block   residual, the stream after it has been added
//   a model                 embedding, what the first block reads; logits
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tensor/tensor.h"

namespace orrery {

class Hooks {  // acts until it is destroyed, on the thread that made it; of several the first made is the first asked
 public:
  using Observer = std::function<void(const std::string& name, const Tensor& value)>;
  // Gets the value as it is recorded and returns what stands in its place, with its shape, dtype and device, or an
  // undefined tensor, which leaves it.  Scores, weights and hidden values leave the fused operation for this.
  struct Replace {
    std::function<Tensor(const std::string& name, const Tensor& value)> with;
  };
  Hooks(std::vector<std::string> patterns,
        Observer observer);  // no patterns: everything that costs nothing to see
  Hooks(std::vector<std::string> patterns, Replace replacement);
  ~Hooks();
  Hooks(const Hooks&) = delete;
  Hooks& operator=(const Hooks&) = delete;
  void check_seen() const;
  const std::set<std::string>& seen() const { return seen_; }  // every name that arose, asked for or not

 private:
  friend Tensor hook(std::string_view path, std::string_view name, const Tensor& x);
  friend bool is_hooked(std::string_view path, std::string_view name);
  friend bool is_replaced(std::string_view path, std::string_view name);
  bool fits(const std::string& name) const;
  Tensor show(const std::string& name, const Tensor& value);

  std::vector<std::string> patterns_;
  Observer observer_;
  Replace replacement_;
  std::set<std::string> seen_;
};

// x itself, shown to those who watch path.name, or what they put in its place.
Tensor hook(std::string_view path, std::string_view name, const Tensor& x);
// Whether path.name is asked for by name or pattern: what must be computed on purpose, such as the weights of a fused
// attention, is computed only then.
bool is_hooked(std::string_view path, std::string_view name);
// Whether something may be put in its place.
bool is_replaced(std::string_view path, std::string_view name);

}  // namespace orrery
