// A text as an argument gives it.
#pragma once

#include <string>

namespace orrery::program {

// What stands in the file if it reads FILE:path, else the text itself.
std::string given_text(const std::string& given);
// Of 16 MiB at most, unpacked if gzip has packed it.  Errors: the file cannot be read, or is longer.
std::string text_of_file(const std::string& path);

}  // namespace orrery::program
