// Text arguments.
#pragma once

#include <string>

namespace orrery::program {

// Returns the file's content for FILE:path, else the argument itself.
std::string given_text(const std::string& given);
// Reads a text file, possibly gzip, of at most 16 MiB; throws if it is longer, cannot be read, or is
// named like a file of tokens.
std::string text_of_file(const std::string& path);

}  // namespace orrery::program
