// Searches in texts. Regular expressions are compiled in text.cpp alone, because <regex> takes one
// to two seconds of every file's compilation.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace orrery::testing {

inline bool contains(std::string_view text, std::string_view expected) { return text.find(expected) != text.npos; }

bool finds(const std::string& text, const std::string& expression);    // ECMAScript; anywhere in the text
bool matches(const std::string& text, const std::string& expression);  // the whole text

// Returns the first match and its groups, and those of all matches; empty if there is none.
std::vector<std::string> match_in(const std::string& text, const std::string& expression);
std::vector<std::vector<std::string>> matches_in(const std::string& text, const std::string& expression);

}  // namespace orrery::testing
