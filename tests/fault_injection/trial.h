// One run of the program in its own folder, with the interposer or without, and checks of its end.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace fault_injection {

using Words = std::vector<std::string>;
Words operator+(Words words, const Words& more);

struct Failure {  // the call that fails; default: none
  std::string kind;
  long at = 0;
  bool lasting = false;
};

struct RunResult {
  int code = -1;  // exit code; 128 + the signal; 124 if it took more than seconds_allowed
  std::string out, err;
  std::map<std::string, long> counts;  // number of calls, by kind
  size_t left = 0;                     // processes of a launcher that did not end
};
constexpr int seconds_allowed = 20;  // for a trial; longer for runs without a failure, such as compiling

// Runs the program with these arguments in `folder`. `plugin`: replaces the compiler's output.
RunResult run(const std::string& folder, const Words& words, const Failure& failure = {},
              const std::string& plugin = "");

struct FailingRank {  // one of two, whose calls fail, except for those by the MPI
  std::string mpi;    // one of mpis()
  int rank = 0;
};
// Runs the program on two ranks.
RunResult run_on_ranks(const std::string& folder, const Words& words, const FailingRank& failing,
                       const Failure& failure = {});
Words mpis();  // that are installed, and that the program was built for: openmpi, mpich

// Runs a shell command there. `orrery WORDS...` is the program; `plugin` is as in run().
RunResult run_shell(const std::string& folder, const std::string& command, const std::string& plugin);

// Returns "" if it ended with exit code 0, or with 1 and one message of ours, else what is wrong.
std::string wrong_end(const RunResult& ran);

// Returns the files below a folder with their contents, without data that depend on the clock or on
// whether the run was resumed.
std::map<std::string, std::string> files_of(const std::string& folder);

}  // namespace fault_injection
