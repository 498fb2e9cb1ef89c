// A failure of the machine, such as exhausted memory: no setting is wrong, so it never becomes a UsageError.
#pragma once

#include "engine/types/check.h"

namespace orrery {

class MachineError : public Error {
 public:
  using Error::Error;
};

}  // namespace orrery
