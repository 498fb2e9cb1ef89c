// The error type for wrong usage: an unknown name or setting, a value out of its range, a missing
// or superfluous argument. The program then exits with another code than after other errors.
#pragma once

#include "engine/types/machine_error.h"

namespace orrery {

class UsageError : public Error {
 public:
  using Error::Error;
};

template <class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail_usage(const Parts&... parts) {
  throw UsageError(text(parts...));
}

template <class... Parts>
void check_usage(bool holds, const Parts&... parts) {
  if (!holds) fail_usage(parts...);
}

// Calls f, which reads values that a user gave; its errors become usage errors with the
// message that `message_of`, if given, makes of theirs.
template <class F, class MessageOf>
decltype(auto) as_usage(const F& f, const MessageOf& message_of) {
  try {
    return f();
  } catch (const MachineError&) {
    throw;
  } catch (const Error& error) {
    throw UsageError(message_of(error.what()));
  }
}
template <class F>
decltype(auto) as_usage(const F& f) {
  return as_usage(f, [](const char* message) { return message; });
}

// Calls f, which reads settings from a file; a wrong setting there is an error of the file.
template <class F>
decltype(auto) as_content(const F& f) {
  try {
    return f();
  } catch (const UsageError& error) {
    throw Error(error.what());
  }
}

}  // namespace orrery
