#include "engine/system/subprocess.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <vector>

#include "engine/system/files.h"
#include "engine/system/open_file.h"
#include "engine/system/proc.h"
#include "engine/types/check.h"

namespace orrery {
namespace {

constexpr const char* program_file = "/proc/self/exe";

// Runs in the child between fork and exec: only calls that are safe there. Sends errno to `errors`.
[[noreturn]] void exec_child(const char* program, char* const* arguments, int out, int inherited, pid_t parent,
                             int errors) {
  const auto require = [&](bool done) {
    if (done) return;
    const int error = errno;
    [[maybe_unused]] const ssize_t written = ::write(errors, &error, sizeof error);
    ::_exit(127);
  };
  // Until exec, the inherited handler would catch SIGTERM, and exec would discard what it stored.
  require(::signal(SIGTERM, SIG_DFL) != SIG_ERR);
  sigset_t ending;  // SIGTERM, which an ancestor process may have blocked
  require(::sigemptyset(&ending) == 0 && ::sigaddset(&ending, SIGTERM) == 0 &&
          ::sigprocmask(SIG_UNBLOCK, &ending, nullptr) == 0);
  require(::prctl(PR_SET_PDEATHSIG, SIGTERM) == 0);
  if (::getppid() != parent) ::_exit(128 + SIGTERM);  // the parent ended before prctl
  require(::setpgid(0, 0) == 0);
  const int in = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  require(in >= 0);
  require(::dup2(in, 0) >= 0 && ::dup2(out, 1) >= 0 && ::dup2(out, 2) >= 0);
  require(inherited < 0 || ::fcntl(inherited, F_SETFD, 0) == 0);  // stays open across exec
  ::execv(program, arguments);
  require(false);
  ::_exit(127);
}

// Returns the path of a program that a shell would start.
std::string path_of(const std::string& command, const std::string& program) {
  if (program.find('/') != std::string::npos) return program;
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path ? path : "/bin:/usr/bin");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (const std::string file = folder + "/" + program; ::access(file.c_str(), X_OK) == 0 && !folder_exists(file))
      return file;
  fail(command, ": cannot start ", program, ": ", std::strerror(ENOENT));
}

}  // namespace

Subprocess::Subprocess(const std::string& command, std::vector<std::string> arguments, const std::string& log,
                       int inherited, const std::vector<std::string>& launcher) {
  std::string program = proc_path(command + ": starting a run", program_file);
  arguments.insert(arguments.begin(), launcher.empty() ? "orrery" : std::filesystem::read_symlink(program).string());
  arguments.insert(arguments.begin(), launcher.begin(), launcher.end());
  if (!launcher.empty()) program = path_of(command, launcher[0]);
  const Descriptor log_file(open_unlinked(log, O_WRONLY | O_TRUNC));
  check(log_file.number() >= 0, command, ": cannot write ", log, ": ", std::strerror(errno));
  std::vector<char*> raw;
  for (std::string& argument : arguments) raw.push_back(argument.data());
  raw.push_back(nullptr);
  int ends[2];
  check(::pipe2(ends, O_CLOEXEC) == 0, command, ": cannot start a run: ", std::strerror(errno));
  const Descriptor from(ends[0]);
  Descriptor to(ends[1]);
  const pid_t parent = ::getpid();
  process_ = ::fork();
  if (process_ == 0) exec_child(program.c_str(), raw.data(), log_file.number(), inherited, parent, to.number());
  int error = process_ < 0 ? errno : 0;
  to.close();
  if (process_ > 0 && ::read(from.number(), &error, sizeof error) > 0) ::waitpid(process_, nullptr, 0);
  check(error == 0, command, ": cannot start ", program, ": ", std::strerror(error));
}

Subprocess::~Subprocess() {
  if (poll()) return;
  stop();
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Subprocess::stop() {
  if (!status_) ::kill(process_, SIGTERM);
}

std::optional<int> Subprocess::poll() {
  if (int status = 0; !status_ && ::waitpid(process_, &status, WNOHANG) == process_) status_ = status;
  return status_;
}

std::string failure_of(int status, const std::string& log) {
  std::istringstream in(file_exists(log) ? read_file(log) : "");
  std::string last;
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("orrery: ")) last = line.substr(8);
  if (!last.empty()) return last;
  const int code = WEXITSTATUS(status), signal = WIFSIGNALED(status) ? WTERMSIG(status) : code - 128;
  return signal > 0 && code < 255 ? text("the process was ended by signal ", signal)
                    : text("the process ended with exit code ", code, " and no error message");
}

}  // namespace orrery
