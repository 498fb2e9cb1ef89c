// The error type for failures of the machine, such as exhausted memory: no setting is wrong, so no
// caller may turn it into a usage error (engine/types/usage_error.h).
#pragma once

#include "engine/types/check.h"

namespace orrery {

class MachineError : public Error {
 public:
  using Error::Error;
};

}  // namespace orrery
