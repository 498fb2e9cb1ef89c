// Help and other text in the width of the window.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "examples/orrery/terminal/arguments.h"

namespace orrery::program {

size_t help_columns();  // of the terminal, at most 100; 80 if standard output is not a terminal

// Breaks lines between words. A continuation has the indent of its line; if that is not 0, it has
// `indent` more spaces.
std::string wrapped(std::string_view text, size_t columns, size_t indent = 0);

// Returns a line with its end, broken between words for the width of this stream if it is a
// terminal. Further lines are indented by two spaces.
std::string broken_line(std::string_view line, int descriptor);

// Two columns: a term and its meaning, which starts below a term that is too long. A term without a
// meaning is the title of the rows after it.
using HelpRows = std::vector<std::pair<std::string, std::string>>;
// Returns the rows in lines of at most `columns`.
std::string print_rows(const HelpRows& rows, size_t columns);

// The short form lists common settings up to the first semicolon of their help; the long form lists
// all, with their ranges; the form of a spec does so without dashes before the keys. Sections have
// titles, in the order of their first settings.
enum class HelpForm { in_brief, in_full, in_spec };
std::string print_settings(const std::vector<SettingHelp>& settings, HelpForm form, size_t columns);

}  // namespace orrery::program
