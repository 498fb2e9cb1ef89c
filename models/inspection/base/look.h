// Analyses of a model on an example (`orrery inspect`). An analysis is a file in models/inspection:
// it runs the example under hooks, as often as it needs, and returns views.
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
  int64_t layer = -1, head = -1;   // index of the attention or feed-forward, in order of execution; head; -1: all
  int64_t slot = -1;               // hidden unit or persistent slot; -1: those with the largest values
  int64_t place = -1;              // position for the logit lens and patching; -1: the hardest to predict, the last
  int64_t top = 10;                // lines of a list
  int64_t seed = 1;                // of generated examples
  const Subject* other = nullptr;  // a second example, to patch from
  std::vector<const Subject*> corpus = {};  // more examples, for top activations; empty: only the example
  std::function<void(const std::string& done, double share)> progress = {};  // called during long work

  void tell(const char* what_is_done, size_t count, size_t of) const {
    if (progress) progress(what_is_done, static_cast<double>(count) / static_cast<double>(of));
  }
};

struct Look {
  std::string name, description;
  // Adds no views if the model lacks the components that it analyzes.
  void (*look)(std::vector<View>& views, const Subject& subject, const LookSettings& settings);
};
Registry<Look>& looks();
bool add_look(Look look);  // also under its former names (models/former_names.h)
#define REGISTER_LOOK(id, ...) \
  [[maybe_unused]] static const bool registered_look_##id = ::orrery::models::add_look(__VA_ARGS__)

// Returns the views of the named analyses ("attention, heads", or "all"), in the catalogue's order.
// Throws if a name is unknown (offers the nearest) or the model lacks the layer, head or slot.
std::vector<View> look_at(const Subject& subject, const std::string& names, const LookSettings& settings);

// Throws if a name is unknown.
void check_looks(const std::string& names);

// ---- for analyses

struct Seen {
  std::string path;  // path of the module, "blocks.0.attention"
  Tensor value;      // f32 or f64, on the CPU
};
// Captures the hook values of this name, such as "weights", in one pass, in order of execution.
std::vector<Seen> see(const Subject& subject, const std::string& name);
// Calls `watch` with each hook value whose full name matches a pattern, in one pass, in order of
// execution. Returns the logits of the pass.
Tensor see_values(
    const Subject& subject, const std::vector<std::string>& patterns,
    const std::function<void(const std::string& path, const std::string& name, const Tensor& value)>& watch);
// Returns a hook value as f32 or f64 on the CPU.
Tensor as_seen(const Tensor& value);
// Captures several names in one pass; element i is see() of name i.
std::vector<std::vector<Seen>> see(const Subject& subject, const std::vector<std::string>& names);

// Returns the index of `layer`, or all indices if it is -1. Throws if it is not below `layers`.
std::vector<size_t> chosen_layers(size_t layers, int64_t layer, const std::string& of_what);
// Throws if the attention at `path`, with `heads` heads, lacks this head.
void check_head(int64_t head, int64_t heads, const std::string& path);

}  // namespace orrery::models
