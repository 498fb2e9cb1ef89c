// This program once more, in a process of its own.
#pragma once

#include <sys/types.h>

#include <string>

#include "examples/orrery/commands.h"

namespace orrery::program {

// Begins it with these words and this one's plug-ins.  It reads nothing, and what it prints goes to the file `log`.
// It is in a process group of its own: a Ctrl-C is for this program, which passes it on.  `held`: a descriptor that
// it holds as long as it lives; -1: none.  Errors begin with `command`.
pid_t begin_child(const std::string& command, Arguments words, const std::string& log, int held = -1);

// The sentence with which such a program ended, from its log; empty: there is none.
std::string complaint_in(const std::string& log);

}  // namespace orrery::program
