// The expressions of tokenizer.json are in the language of the library Oniguruma; what runs them here is PCRE2.
#pragma once

#include <string>
#include <string_view>

namespace orrery::models {

// The same expression in PCRE2's language, for Unicode and with PCRE2_MULTILINE.  TokenizerNotSupported where there is
// none, or where the two languages are not known to mean the same.  What is no expression stays for PCRE2 to refuse.
std::string pcre2_of_oniguruma(std::string_view expression);

}  // namespace orrery::models
