// Runs this program again in a child process.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace orrery {

// A child process that runs this program and outlives neither this object nor this process.
class Subprocess {
 public:
  // Starts the program with these arguments, without input; its output goes to the file `log`. It
  // has its own process group: Ctrl-C reaches this process, which forwards it. The descriptor
  // `inherited` stays open in the child (-1: none). Error messages begin with `command`. With `launcher`,
  // words such as mpirun -n 3, the child is that program, whose last arguments are this one and `arguments`.
  Subprocess(const std::string& command, std::vector<std::string> arguments, const std::string& log,
             int inherited = -1, const std::vector<std::string>& launcher = {});
  ~Subprocess();  // stops a running child and waits for its end
  Subprocess(const Subprocess&) = delete;

  void stop();                // sends SIGTERM; a run then saves a checkpoint and ends
  std::optional<int> poll();  // returns the status of waitpid(2), or none while the child runs; does not wait

 private:
  pid_t process_ = -1;
  std::optional<int> status_;
};

// Returns why a child failed: the last error in its log, else the signal or exit code of `status`.
std::string failure_of(int status, const std::string& log);

}  // namespace orrery
