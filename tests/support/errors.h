#pragma once

#include <string>

#include "engine/types/check.h"

namespace orrery::testing {

// Returns the message of the Error that f throws, or "no error".
template <class F>
std::string error_of(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace orrery::testing
