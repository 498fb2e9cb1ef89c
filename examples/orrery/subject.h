// The example that `orrery inspect` and `orrery report` look at, from what the user has given.
#pragma once

#include <memory>
#include <string>

#include "examples/orrery/trained.h"
#include "models/inspection/base/example.h"
#include "models/inspection/base/subject.h"

namespace orrery::program {

// Errors begin with the command: what this model reads is not given, or what is given is not what it reads.
std::unique_ptr<models::Subject> make_subject(const std::string& command, const Trained& trained,
                                              const models::ExampleSettings& example);
// An Error if the example has something beside what this model reads.
void check_all_is_read(const std::string& command, const Trained& trained, const models::ExampleSettings& example);

}  // namespace orrery::program
