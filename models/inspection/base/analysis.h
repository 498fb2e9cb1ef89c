// Analyses of a model on an example (`orrery inspect`). An analysis is a file in models/inspection:
// it runs the example under hooks, as often as it needs, and returns views.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/autograd/hooks.h"
#include "engine/settings/registry.h"
#include "models/inspection/base/inspected_example.h"
#include "models/inspection/base/view.h"

namespace orrery::models {

struct AnalysisSettings {
  int64_t layer = -1, head = -1;  // index of the attention or feed-forward, in order of execution; head; -1: all
  int64_t slot = -1;              // neuron (hidden unit) or persistent slot; -1: those with the largest values
  int64_t position = -1;          // position for the logit lens and patching; -1: the hardest to predict, the last
  int64_t key = -1;               // key, or column of the weights, whose score is explained; -1: the largest weight
  std::string answer = {}, against = {};  // names of a token or class, and of another; empty: base/answers.h
  int64_t top = 10;               // lines of a list
  int64_t seed = 1;               // of generated examples
  bool of_many = false;           // of many examples: leave out components that each example would choose
  const InspectedExample* patch_from = nullptr;      // a second example, to patch from
  std::vector<const InspectedExample*> corpus = {};  // more examples, for top activations; empty: only the example
  std::function<void(const std::string& done, double fraction)> progress = {};  // called during long work

  void report_progress(const char* stage, size_t count, size_t total) const {
    if (progress) progress(stage, static_cast<double>(count) / static_cast<double>(total));
  }
};

struct Analysis {
  std::string name, description;
  // Adds no views if the model lacks the components that it analyzes.
  void (*analyze)(std::vector<View>& views, const InspectedExample& example, const AnalysisSettings& settings);
};
Registry<Analysis>& analyses();
bool add_analysis(Analysis analyze);  // also under its former names (models/former_names.h)
#define REGISTER_ANALYSIS(id, ...) \
  [[maybe_unused]] static const bool registered_analysis_##id = ::orrery::models::add_analysis(__VA_ARGS__)

// Returns the views of the named analyses ("attention, heads", or "all"), in the catalogue's order.
// Throws if a name is unknown (offers the nearest) or the model lacks the layer, head or slot.
std::vector<View> analyze(const InspectedExample& example, const std::string& names, const AnalysisSettings& settings);

// Throws if a name is unknown.
void check_analyses(const std::string& names);

// ---- for analyses

struct Captured {
  std::string path;  // path of the module, "blocks.0.attention"
  Tensor value;      // f32 or f64, on the CPU
};
// Captures the hook values of this name, such as "weights", in one pass, in order of execution.
std::vector<Captured> capture(const InspectedExample& example, const std::string& name);
// Calls `watch` with each hook value whose full name matches a pattern, in one pass, in order of
// execution. Returns the logits of the pass.
Tensor capture_values(
    const InspectedExample& example, const std::vector<std::string>& patterns,
    const std::function<void(const std::string& path, const std::string& name, const Tensor& value)>& watch);
// Returns a hook value as f32 or f64 on the CPU.
Tensor to_cpu(const Tensor& value);
// Captures several names in one pass; element i is capture() of name i.
std::vector<std::vector<Captured>> capture(const InspectedExample& example, const std::vector<std::string>& names);

// Returns the index of `layer`, or all indices if it is -1. Throws if it is not below `layers`.
std::vector<size_t> chosen_layers(size_t layers, int64_t layer, const std::string& module_kind);
// Throws if the attention at `path`, with `heads` heads, lacks this head.
void check_head(int64_t head, int64_t heads, const std::string& path);

}  // namespace orrery::models
