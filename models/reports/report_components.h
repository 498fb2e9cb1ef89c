// The formulas of a run's components, from the catalogue.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "models/inspection/base/view.h"
#include "models/reports/report.h"

namespace orrery::models {

// A component's file, the link of a page to it, and the file's head: formula, derivative, tensors saved for backward.
// Empty: unknown.
struct SourceHead {
  std::string file, link, text;
};
using Derivation = std::function<SourceHead(const std::string& family, const std::string& name)>;

// Appends a `formula` section with every component that the settings name, also in specs: dense and
// gelu of dense(gelu), rms of softmax(qk_norm=rms).
void add_components(Json& sections, std::span<const TrainSettings> settings, const Derivation& derivation);

// Adds the formulas of a tree's modules, in the order in which they first appear, and their files.
void add_formulas(ComponentsView& tree, const Derivation& derivation);

}  // namespace orrery::models
