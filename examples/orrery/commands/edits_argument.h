// --edits of the commands that run a trained model (models/inspection/base/edits.h).
#pragma once

#include <memory>
#include <string>

#include "models/inspection/base/edits.h"

namespace orrery::program {

inline constexpr const char* edits_help =
    "changes of the model's values while it runs, such as \"blocks.0.attention.3*0\", which takes a head out";

// Returns the edits, which apply as long as they live. They cannot use another example.
std::unique_ptr<models::Edits> begin_edits(const std::string& command, const std::string& edits, nn::Module& model,
                                           bool with_positions);

}  // namespace orrery::program
