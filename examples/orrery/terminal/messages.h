// Standard error: settings, progress, warnings and notes. Standard output is for results only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace orrery::program {

// Prints lines to standard error, after all output so far and above a live line. Adds a missing
// line break. A failed write is ignored, because a run must not end with its terminal.
void print_message(std::string_view lines);

void warn(const std::string& sentence);  // "warning: sentence", escaped by for_terminal
void warn(const std::vector<std::string>& sentences);  // a line each
void note(const std::string& sentence);  // "note: sentence"

// Shows the live line: the last line of a terminal, which each call replaces. In a file or pipe
// every line stays. Any thread may show it.
void show_live_line(const std::string& line);
bool erase_live_line();  // returns whether there was one

}  // namespace orrery::program
