// Looks: what `orrery inspect` shows of a model at work.  A look is a file of this folder: it runs the subject under
// hooks, as often as it needs, and tells what it has seen as views.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/autograd/hooks.h"
#include "engine/settings/registry.h"
#include "models/inspection/base/subject.h"
#include "models/inspection/base/view.h"

namespace orrery::models {

struct LookSettings {
  int64_t layer = -1, head = -1;   // which attention or feed-forward, in the order they act, and which head; -1: all
  int64_t slot = -1;               // which hidden unit or persistent slot; -1: those that stand out
  int64_t place = -1;              // at which a lens is told and patching measured; -1: the hardest to answer, the last
  int64_t top = 10;                // so many lines of a list
  int64_t seed = 1;                // of examples that a look makes up
  const Subject* other = nullptr;  // a second example, to patch from
  std::vector<const Subject*> corpus = {};  // more of the kind, to find what excites a memory; empty: the example
  std::function<void(const std::string& done, double share)> progress = {};  // told of long work

  void tell(const char* what_is_done, size_t count, size_t of) const {
    if (progress) progress(what_is_done, static_cast<double>(count) / static_cast<double>(of));
  }
};

struct Look {
  std::string name, description;
  // Adds nothing if the model has none of what it looks at.
  void (*look)(std::vector<View>& views, const Subject& subject, const LookSettings& settings);
};
Registry<Look>& looks();
#define REGISTER_LOOK(id, ...) \
  [[maybe_unused]] static const bool registered_look_##id = (::orrery::models::looks().add(__VA_ARGS__), true)

// Of the looks with these names ("attention, heads", or "all"), what they see, in the order of the catalogue.  Errors:
// an unknown name, with the nearest; a layer, head or slot that the model lacks.
std::vector<View> look_at(const Subject& subject, const std::string& names, const LookSettings& settings);

// An Error if one of these names is unknown.
void check_looks(const std::string& names);

// ---- for looks

struct Seen {
  std::string path;  // of the module, "blocks.0.attention"
  Tensor value;      // f32 or f64, on the CPU
};
// What modules show under this name, "weights", in the order in which it arises, in one pass.
std::vector<Seen> see(const Subject& subject, const std::string& name);
// What `watch` gets is shown with these patterns of whole names, in the order in which it arises, in one pass, whose
// logits are returned.
Tensor see_values(
    const Subject& subject, const std::vector<std::string>& patterns,
    const std::function<void(const std::string& path, const std::string& name, const Tensor& value)>& watch);
// What a hook shows as looks read it: f32 or f64, on the CPU.
Tensor as_seen(const Tensor& value);
// Several names, one pass: of each name what see() gives.
std::vector<std::vector<Seen>> see(const Subject& subject, const std::vector<std::string>& names);

// Of so many layers the one that is asked for, or all.  Error: there is no such layer.
std::vector<size_t> chosen_layers(size_t layers, int64_t layer, const std::string& of_what);
// Error: the attention at that path, of so many heads, has no such head.
void check_head(int64_t head, int64_t heads, const std::string& path);

}  // namespace orrery::models
