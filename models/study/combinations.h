// Many runs from one line: values in braces, and every combination of them.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace orrery::models {

// What a shell makes of braces: "dyt(alpha={1,2})" is dyt(alpha=1) and dyt(alpha=2), "{0..4}" is 0 1 2 3 4 (or down),
// "{softmax,relu{,6}}" is softmax relu relu6.  Several give every combination, the first changes slowest.  A comma in
// round brackets divides nothing: "{softmax,pointwise(relu, alpha=1)}" has two parts.  Errors: a brace that is not
// closed or not opened, an empty pair, more than `most` values.
std::vector<std::string> expand_braces(const std::string& text, size_t most = 100'000);

using Assignments = std::vector<std::pair<std::string, std::string>>;

// A key that is given several times, or with braces, has all these values; every combination of all keys, in the order
// in which keys first came, the first changes slowest.  An Error if there are more than `most`.
std::vector<Assignments> combinations(const Assignments& given, size_t most = 100'000);
// The keys that have more than one value there.
std::vector<std::string> varied_keys(const Assignments& given);

}  // namespace orrery::models
