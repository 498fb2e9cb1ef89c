// Text arguments: a text itself, a file, or what a pipe delivers.
#pragma once

#include <string>

#include "models/data/lines.h"

namespace orrery::program {

// Returns the standard input for -, else the argument itself.
std::string text_or_input(const std::string& given);
// Returns the file's content for FILE:path, the standard input for -, else the argument itself.
std::string text_argument(const std::string& given);
// Reads a text file or pipe, possibly gzip, of at most 16 MiB; throws if it is longer, cannot be
// read, or is named like a file of tokens. Drops a byte order mark at its start.
std::string text_of_file(const std::string& path);
// Like text_of_file, but of a longer file, returns the first 16 MiB, up to the end of a line, and
// prints a note.
std::string beginning_of_file(const std::string& path);

// Calls `take` for each line of a pipe (engine/system/files.h).
void each_line_of_pipe(const std::string& path, const std::string& what, const models::TakeLine& take);

}  // namespace orrery::program
