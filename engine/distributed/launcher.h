// Who started this process, and the transport to the others that it started.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/distributed/transport.h"

namespace orrery {

struct Launch {  // as the launcher says in the environment
  enum class By { none, open_mpi, mpich };
  By by = By::none;
  int64_t rank = 0, count = 1;
  bool has_others() const { return count > 1; }
};
Launch launch_of_process();

// Opens the library of this MPI, in the folder of orrery's libraries. Errors:
//   ranks: started as one of 4 by Open MPI, but this program was built for MPICH: use mpirun.mpich, or
//   install libopenmpi-dev and build it again
std::unique_ptr<Transport> open_transport(const Launch& launch);
bool has_joined();  // true when open_transport has joined the others, which a process does once

}  // namespace orrery
