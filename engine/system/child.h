// This program once more, in a process of its own.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace orrery {

// A child process that runs this program and outlives neither this object nor this process.
class Child {
 public:
  // Starts the program with these arguments. It reads nothing; what it prints goes to the file `log`. It has a process
  // group of its own: a Ctrl-C is for this process, which passes it on. `held` is a descriptor that stays open as long
  // as the child lives; -1: none. Messages of errors begin with `command`.
  Child(const std::string& command, std::vector<std::string> words, const std::string& log, int held = -1);
  ~Child();  // stops a child that has not ended, and waits for its end
  Child(const Child&) = delete;

  void stop();                 // by SIGTERM, on which a run saves a checkpoint and ends
  std::optional<int> ended();  // its status as waitpid(2) has it; none: it has not ended. Does not wait

 private:
  pid_t process_ = -1;
  std::optional<int> status_;
};

// Why a child failed: the last error message in its log, else the signal or the exit code of `status`.
std::string failure_of(int status, const std::string& log);

}  // namespace orrery
