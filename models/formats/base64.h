// Base64: six bits a character, A-Z a-z 0-9 + /, and = up to a multiple of 4. RFC 4648, section 4.
#pragma once

#include <string>
#include <string_view>

namespace orrery::models {

std::string base64(std::string_view bytes);
// Throws Error if the text is not valid base64; the message begins with `what`.
std::string bytes_of_base64(std::string_view text, std::string_view what);

}  // namespace orrery::models
