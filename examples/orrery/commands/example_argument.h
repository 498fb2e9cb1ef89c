// The example that `orrery inspect` and `orrery report` analyze.
#pragma once

#include <memory>
#include <string>

#include "examples/orrery/commands/load_run.h"
#include "models/inspection/base/example.h"
#include "models/inspection/base/inspected_example.h"

namespace orrery::program {

// Throws if input is missing or is not of the model's kind. The message begins with the command.
std::unique_ptr<models::InspectedExample> make_example(const std::string& command, const LoadedRun& trained,
                                                       const models::ExampleSettings& example);
constexpr int64_t max_own_tokens = 64;  // limit for default examples: their maps stay legible

// Returns the first held-out example: start of the text, an image, a pair of short sentences, a
// problem's sequence. Null without data; throws if they cannot be read.
std::unique_ptr<models::InspectedExample> default_example(const std::string& command, const LoadedRun& trained);
// Returns the first held-out pair that is short enough, or an empty example.
models::ExampleSettings held_out_pair(const LoadedRun& trained, const models::TranslationModel& model,
                                      const models::Tokenizer& tokenizer);

// Throws if the example has input that this model does not read.
void check_input_kind(const std::string& command, const LoadedRun& trained, const models::ExampleSettings& example);

}  // namespace orrery::program
