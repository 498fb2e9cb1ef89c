#include "engine/system/compiler.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <string_view>

#include "engine/system/files.h"
#include "engine/types/check.h"

namespace orrery {
namespace {

// A guard process between this program and the compiler. It waits for the compiler's end, the time
// limit (SIGALRM) or the end of this program (SIGTERM by PR_SET_PDEATHSIG). It is forked from a
// program with threads, so it makes system calls only.
constexpr int timed_out = 124, failed = 1;
pid_t group = 0;  // the compiler's process group; set in the guard

[[noreturn]] void end_group(int signal) {
  ::kill(-group, SIGTERM);
  constexpr timespec pause{0, 10'000'000};
  for (int i = 0; i < 100 && ::waitpid(-1, nullptr, WNOHANG) >= 0; ++i) ::nanosleep(&pause, nullptr);
  ::kill(-group, SIGKILL);
  ::_exit(signal == SIGALRM ? timed_out : failed);
}

void print(std::string_view line) {
  [[maybe_unused]] const ssize_t written = ::write(STDOUT_FILENO, line.data(), line.size());
}

[[noreturn]] void exec_compiler(char* const* arguments) {
  ::setpgid(0, 0);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_DFL);
  ::execv(arguments[0], arguments);
  print("cannot start the compiler\n");
  ::_exit(127);
}

[[noreturn]] void guard(char* const* arguments, int output, int64_t limit, pid_t program) {
  const int none = ::open("/dev/null", O_RDONLY);
  ::dup2(none, STDIN_FILENO), ::dup2(output, STDOUT_FILENO), ::dup2(output, STDERR_FILENO);
  for (const int signal : {SIGINT, SIGHUP, SIGQUIT}) ::signal(signal, SIG_IGN);  // from the terminal
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // end_group waits for the compiler's children too
  group = ::fork();
  if (group == 0) exec_compiler(arguments);
  if (group < 0) {
    print("cannot start another process\n");
    ::_exit(failed);
  }
  ::setpgid(group, group);  // parent and child both set it, because either may run first
  ::signal(SIGTERM, end_group), ::signal(SIGALRM, end_group);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != program) end_group(SIGTERM);  // the program ended before prctl
  ::alarm(static_cast<unsigned>(limit));
  int status = 0;
  while (::waitpid(group, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) end_group(SIGTERM);
  ::_exit(0);
}

}  // namespace

CompilerResult run_compiler(const std::vector<std::string>& command, int64_t limit) {
  check(::access(command[0].c_str(), X_OK) == 0, "try: cannot run the compiler ", command[0], ": ",
        std::strerror(errno), "; install it, or build orrery again with a compiler of this machine");
  std::vector<std::string> words = command;
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int ends[2];
  check(::pipe2(ends, O_CLOEXEC) == 0, "try: cannot start the compiler: ", std::strerror(errno));
  const Descriptor from(ends[0]);
  Descriptor to(ends[1]);
  const pid_t program = ::getpid(), process = ::fork();
  if (process == 0) guard(arguments.data(), ends[1], limit, program);
  check(process > 0, "try: cannot start the compiler: ", std::strerror(errno));
  to.close();

  CompilerResult compiled;
  char buffer[4096];
  constexpr size_t max_output = 1 << 20;  // bytes; the first error is near the beginning
  ssize_t got = 0;
  int error = 0;
  while ((got = ::read(from.number(), buffer, sizeof buffer)) != 0) {
    if (got > 0 && compiled.output.size() < max_output) compiled.output.append(buffer, static_cast<size_t>(got));
    if (got >= 0 || errno == EINTR) continue;
    error = errno;
    ::kill(process, SIGTERM);
    break;
  }
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  check(error == 0, "try: cannot read the output of the compiler: ", std::strerror(error));
  compiled.in_time = !WIFEXITED(status) || WEXITSTATUS(status) != timed_out;
  compiled.succeeded = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return compiled;
}

}  // namespace orrery
