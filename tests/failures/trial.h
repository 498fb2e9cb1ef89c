// One run of the program in a folder of its own, under the interposer or not, and what is asked of it.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace failures {

using Words = std::vector<std::string>;

struct Failure {  // which call fails; none: all go well
  std::string kind;
  long at = 0;
  bool lasting = false;
};

struct Ran {
  int code = -1;  // of the exit; 128 + the signal; 124 if it took more than seconds_allowed
  std::string out, err;
  std::map<std::string, long> counts;  // of calls, by kind
};
constexpr int seconds_allowed = 20;  // of a trial; of what is not, such as compiling, more

// Runs the program with these words in `folder`.  `plugin`: what stands for the compiler's work.
Ran run(const std::string& folder, const Words& words, const Failure& failure = {}, const std::string& plugin = "");

// A shell command there, in which `orrery WORDS...` is the program, with the same plug-in in place of a compiler.
Ran run_shell(const std::string& folder, const std::string& command, const std::string& plugin);

// Empty, or what is wrong with the way it ended: neither exit 0 nor exit 1 with one sentence of ours.
std::string wrong_end(const Ran& ran);

std::string contents(const std::string& path);
// Files below a folder with their contents; without what the clock is part of, and whether they
// came of a run that was gone on with.
std::map<std::string, std::string> files_of(const std::string& folder);

}  // namespace failures
