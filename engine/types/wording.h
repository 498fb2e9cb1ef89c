// Numbers and names as people read them, and lists as they write them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orrery {

std::string fixed(double x, int digits);                     // 1.50
std::string signed_fixed(double x, int digits);              // +1.50
std::string scientific(double x, int digits = 1);            // 1.5e-05
std::string significant(double x, int digits);               // so many digits at the most, as %g writes them
std::string grouped(int64_t x);                              // 1,234,567
std::string counted(int64_t n, const std::string& one);      // 1 row; 1,234 rows
std::string in_megabytes(double bytes);                      // 12 MB; a part of one counts as one
std::string in_words(std::string name);                      // bits_per_character: bits per character
std::vector<std::string> items_of(const std::string& list);  // "a, b": a and b; what is empty is left out

}  // namespace orrery
