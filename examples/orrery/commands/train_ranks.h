// A command that a launcher of MPI has started on several ranks.
#pragma once

#include <functional>

#include "engine/distributed/ranks.h"

namespace orrery::program {

// Calls work on all ranks that a launcher has started; without a launcher, with one rank.
// Rank 0 alone prints, as to a pipe. An error on one rank ends all; one of them prints it. Returns
// work's exit code.
int on_ranks(const std::function<int(Ranks&)>& work);

// Throws if a launcher has started several processes for a command of one:
//   orrery generate runs in one process, not as one of 4; leave the launcher out
void check_one_process(const std::string& command);

// Ends all processes with the exception that is being handled, if a launcher has started several. It joins MPI, where
// others may wait for this process, which MPICH does not end.
void end_other_ranks();

}  // namespace orrery::program
