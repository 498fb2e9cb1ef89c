// From inputs to inputs nearby: bits, bytes, words of the format, pieces of other inputs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/format.h"

namespace fuzz {

// One to eight changes.  `corpus` gives pieces; the result is at most `longest` bytes.
std::string mutated(const Format& format, std::string_view bytes, const std::vector<std::string>& corpus,
                    size_t longest, Random& random);

}  // namespace fuzz
