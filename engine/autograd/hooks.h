// Looking at named intermediates while a model runs, without changing what it computes.
//
//   Hooks hooks({"blocks.0.attention.weights"}, [](const std::string& name, const Tensor& value) { ... });
//   model(tokens, pass);   // the function is called with each named value as it arises
//   hooks.check_seen();    // an Error that names the nearest if a name never arose
//
// Names are the path of the module and one of: query key value weights read residual, and of an attention's rows of
// weights, (B, H, T) each: row_sum row_entropy row_zero_share row_maximum (nn/diagnostics/diagnostics.h makes numbers
// of them).
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tensor/tensor.h"

namespace orrery {

class Hooks {  // watches until it is destroyed; one at a time, on the thread that made it
 public:
  using Observer = std::function<void(const std::string& name, const Tensor& value)>;
  Hooks(std::vector<std::string> names,
        Observer observer);  // no names: everything that costs nothing to see
  ~Hooks();
  Hooks(const Hooks&) = delete;
  Hooks& operator=(const Hooks&) = delete;
  void check_seen() const;
  const std::set<std::string>& seen() const { return seen_; }  // every name that arose, watched or not

 private:
  friend Tensor hook(std::string_view path, std::string_view name, const Tensor& x);
  friend bool is_hooked(std::string_view path, std::string_view name);
  std::vector<std::string> names_;
  Observer observer_;
  std::set<std::string> seen_;
};

// x itself, shown to the observer if one watches path.name.
Tensor hook(std::string_view path, std::string_view name, const Tensor& x);
// Whether path.name is asked for by name: what must be computed on purpose, such as the weights of a fused attention,
// is computed only then.
bool is_hooked(std::string_view path, std::string_view name);

}  // namespace orrery
