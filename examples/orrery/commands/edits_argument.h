// --edits of the commands that run a trained model (models/inspection/base/edits.h).
#pragma once

#include <memory>
#include <string>

#include "examples/orrery/commands/load_run.h"
#include "models/formats/json.h"
#include "models/inspection/base/edits.h"

namespace orrery::program {

inline constexpr const char* edits_help =
    "changes of the model's values while it runs, such as \"blocks.0.attention.3*0\", which takes a head out";

// Returns the edits, which apply as long as they live. They cannot use another example.
std::unique_ptr<models::Edits> begin_edits(const std::string& command, const std::string& edits, nn::Module& model,
                                           models::Passes passes);
// Returns the passes that a validation takes the model through; translations are decoded.
models::Passes passes_of_validation(const nn::Module& model);

// Adds the strings "edits" and "mean_over", if there are any, to a file or an answer.
void add_edits(models::Json& to, const models::Edits& edits);
// Returns "edits: embedding=mean, with means over ..." for what add_edits has added; empty if there are none.
std::string describe_edits(const models::Json& of);
std::string describe(const models::Edits& edits);
void note_edits(const models::Edits& edits);  // on the standard error

}  // namespace orrery::program
