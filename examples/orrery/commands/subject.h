// The example that `orrery inspect` and `orrery report` look at, from what the user has given.
#pragma once

#include <memory>
#include <string>

#include "examples/orrery/commands/trained.h"
#include "models/inspection/base/example.h"
#include "models/inspection/base/subject.h"

namespace orrery::program {

// Errors begin with the command: what this model reads is not given, or what is given is not what it reads.
std::unique_ptr<models::Subject> make_subject(const std::string& command, const Trained& trained,
                                              const models::ExampleSettings& example);
constexpr int64_t most_own_tokens = 64;  // of an example that no user has given: its maps can still be read

// The first example that is held out of the run's data: the beginning of the text, an image, a pair of short sentences,
// a problem's sequence.  Null if the run has no data; an Error if they cannot be read.
std::unique_ptr<models::Subject> held_out_subject(const std::string& command, const Trained& trained);
// The first held-out pair that is short enough; none: there is none.
models::ExampleSettings held_out_pair(const Trained& trained, const models::TranslationModel& model,
                                      const models::Tokenizer& tokenizer);

// An Error if the example has something beside what this model reads.
void check_all_is_read(const std::string& command, const Trained& trained, const models::ExampleSettings& example);

}  // namespace orrery::program
