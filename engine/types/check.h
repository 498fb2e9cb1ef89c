// The error type for all user errors, and the two functions that throw it.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace orrery {

// Form of a message: operation, colon, sentence, values, semicolon, hint.
//   matmul: inner sizes differ: (4, 16, 64) x (32, 64); did you mean transpose_b?
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Concatenates the parts as `<<` prints them. Throws if memory runs out, because a stream would
// silently drop the rest. Cold, like `fail`: otherwise the optimizer spends a third of a file's
// compile time on messages.
template <class... Parts>
[[gnu::cold, gnu::noinline]] std::string text(const Parts&... parts) {
  std::ostringstream out;
  out.exceptions(std::ios::badbit);
  (out << ... << parts);
  return out.str();
}

template <class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail(const Parts&... parts) {
  throw Error(text(parts...));
}

template <class... Parts>
void check(bool holds, const Parts&... parts) {
  if (!holds) fail(parts...);
}

}  // namespace orrery
