// Formatting of numbers and names, and parsing of lists.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orrery {

std::string fixed(double x, int digits);                        // 1.50
std::string signed_fixed(double x, int digits);                 // +1.50
std::string scientific(double x, int digits = 1);               // 1.5e-05
std::string significant(double x, int digits);                  // at most this many digits, as %g prints them
std::string with_commas(int64_t x);                             // 1,234,567
std::string pluralize(int64_t n, const std::string& singular);  // 1 row; 1,234 rows
std::string in_megabytes(double bytes);                         // 12 MB; rounded up
std::string humanize(std::string name);                         // bits_per_character: bits per character
std::vector<std::string> split_list(const std::string& list);   // "a, b": a and b; empty items are dropped

}  // namespace orrery
