// Mutations of inputs: bits, bytes, terms of the format, parts of other inputs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/format.h"

namespace fuzz {

// Applies one to eight changes. Parts come from `corpus`; the result has at most `max_bytes` bytes.
std::string mutated(const Format& format, std::string_view bytes, const std::vector<std::string>& corpus,
                    size_t max_bytes, Random& random);

}  // namespace fuzz
