// Runs the program orrery as a user does: arguments, both streams, the exit code.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/text.h"
#include "tests/support/tiny_text.h"

struct Outcome {
  int code = -1;  // exit code; 128 + the signal if one ended it
  std::string out, err;
  int64_t peak = 0;  // peak memory in bytes, only of run_orrery
};

// Returns true if a training was completed; 3: it was too short to learn anything.
inline bool is_complete(const Outcome& outcome) { return outcome.code == 0 || outcome.code == 3; }

// Returns the shell command that runs the program with these arguments.
inline std::string command_of(const std::vector<std::string>& words) {
  std::string command = "\"$ORRERY\"";
  for (const std::string& word : words) command += " '" + word + "'";
  return command;
}
// Runs a shell command; $ORRERY is the program.
Outcome run_shell(const std::string& command);
// Runs it on a terminal, whose lines end with "\r\n"; none: there are no pseudo-terminals here.
std::optional<Outcome> run_on_terminal(const std::string& command);
// Runs the program with these arguments, without a shell.
Outcome run_orrery(const std::vector<std::string>& words);

std::string last_line(const std::string& text);
using orrery::testing::contains;
std::string read_file(const std::string& path);

// A folder that its destructor removes.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  std::string write(const std::string& name, const std::string& content) const;  // returns the path

 private:
  std::string path_;
};

// The program while it runs.
class RunningOrrery {
 public:
  explicit RunningOrrery(const std::vector<std::string>& words);
  pid_t process() const { return process_; }
  Outcome end();  // waits for its end

 private:
  Folder folder_;
  pid_t process_;
};

// Settings of a model that trains almost instantly.
inline const std::vector<std::string> tiny = {"--layers=1",     "--heads=2", "--width=16",      "--context=8",
                                              "--batch_size=2", "--steps=4", "--warmup_steps=1"};
using orrery::testing::tiny_text;
std::vector<std::string> operator+(std::vector<std::string> words, const std::vector<std::string>& more);
