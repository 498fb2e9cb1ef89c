// The text of edits (models/inspection/base/edits.h).
#pragma once

#include "models/inspection/base/edits.h"

namespace orrery::models {

// Returns the edits, without those of the examples that they need. Throws as Edits does.
std::vector<ValueEdit> read_edits(const std::string& edits, nn::Module& model, Passes passes);
// Returns the text with one spelling of white space: "a*0; b=mean".
std::string plain_edits(const std::string& edits);

}  // namespace orrery::models
