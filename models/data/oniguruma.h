// Translates expressions of tokenizer.json, written for Oniguruma, to PCRE2, which runs them.
#pragma once

#include <string>
#include <string_view>

namespace orrery::models {

// Returns the expression for PCRE2 with Unicode and PCRE2_MULTILINE. Throws TokenizerNotSupported
// if there is none or its meaning may differ. Invalid expressions are left for PCRE2 to reject.
std::string pcre2_of_oniguruma(std::string_view expression);

}  // namespace orrery::models
