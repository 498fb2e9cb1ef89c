// The text of `orrery inspect --corpus`, which is searched for top activations.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "examples/orrery/commands/load_run.h"
#include "models/inspection/base/inspected_example.h"

namespace orrery::program {

// Splits the text into chunks of the model's context length.
std::vector<std::unique_ptr<models::InspectedExample>> corpus_chunks(const std::string& file, const LoadedRun& trained,
                                                                     const models::InspectedExample& inspected);

}  // namespace orrery::program
