#include "tests/fault_injection/trial.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "tests/support/contents.h"

namespace fault_injection {
namespace {

namespace fs = std::filesystem;
using orrery::testing::contents;

// Runs in the child, between fork and exec.
[[noreturn]] void become(const std::string& folder, const std::vector<char*>& words,
                         const std::vector<char*>& environment, int err) {
  if (::chdir(folder.c_str()) != 0) ::_exit(126);
  const int in = ::open("/dev/null", O_RDONLY), out = ::open(".out", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  ::dup2(in, 0), ::dup2(out, 1), ::dup2(err, 2);
  ::close(in), ::close(out);
  ::execve(words[0], words.data(), environment.data());
  ::_exit(127);
}

int wait_for(pid_t child, int seconds) {
  const auto start = std::chrono::steady_clock::now();
  for (int wait = 1;; wait = std::min(wait * 2, 16)) {
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child)
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (std::chrono::steady_clock::now() - start > std::chrono::seconds(seconds)) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return 124;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(wait));
  }
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

RunResult start(const std::string& folder, Words command, Words environment, int seconds) {
  const std::vector<char*> argv = pointers(command), envp = pointers(environment);
  // stderr is a pipe, because limits on files must not hide the message. A message fits into a pipe.
  int err[2];
  if (::pipe2(err, O_CLOEXEC | O_NONBLOCK) != 0) throw std::runtime_error("no pipe");
  const pid_t child = ::fork();
  if (child == 0) become(folder, argv, envp, err[1]);
  ::close(err[1]);
  RunResult ran;
  ran.code = wait_for(child, seconds);
  ran.out = contents(folder + "/.out");
  char chunk[4096];
  for (ssize_t got; (got = ::read(err[0], chunk, sizeof chunk)) > 0;) ran.err.append(chunk, static_cast<size_t>(got));
  ::close(err[0]);
  std::istringstream counts(contents(folder + "/.counts"));
  std::string kind;
  for (long n = 0; counts >> kind >> n;) ran.counts[kind] = n;
  for (const char* name : {"/.out", "/.counts"}) fs::remove(folder + name);
  return ran;
}

Words failing(const Failure& failure) {
  Words environment = {"LD_PRELOAD=" FAULT_INJECTION_INTERPOSER, "FAILURES_COUNTS=.counts"};
  if (failure.at > 0) {
    environment.push_back("FAILURES_KIND=" + failure.kind);
    environment.push_back("FAILURES_AT=" + std::to_string(failure.at));
  }
  if (failure.lasting) environment.push_back("FAILURES_LASTING=1");
  return environment;
}
int seconds_for(const Failure& failure) { return failure.at > 0 ? seconds_allowed : 10 * seconds_allowed; }

std::string launcher_of(const std::string& mpi) { return "/usr/bin/mpirun." + mpi; }

std::vector<pid_t> processes_in(const std::string& folder) {
  std::vector<pid_t> found;
  std::error_code gone;  // a process that ends, or another user's
  for (const auto& process : fs::directory_iterator("/proc"))
    if (fs::read_symlink(process.path() / "cwd", gone) == folder && !gone)
      found.push_back(static_cast<pid_t>(std::stol(process.path().filename().string())));
  return found;
}

// Returns the output without Open MPI's remarks, which are between lines of dashes.
std::string without_remarks(const std::string& err) {
  std::string rest;
  std::istringstream lines(err);
  bool remark = false;
  for (std::string line; std::getline(lines, line);) {
    const bool edge = line.starts_with("-----");
    remark ^= edge;
    if (!remark && !edge) rest += line + "\n";
  }
  return rest;
}

}  // namespace

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

RunResult run(const std::string& folder, const Words& words, const Failure& failure, const std::string& plugin) {
  Words environment = Words{"PATH=/usr/bin:/bin"} + failing(failure);
  if (!plugin.empty()) environment.push_back("FAILURES_PLUGIN=" + plugin);
  return start(folder, Words{ORRERY_PROGRAM} + words, environment, seconds_for(failure));
}

Words mpis() {
  Words all;
  for (const char* mpi : {"openmpi", "mpich"})
    if (fs::exists(launcher_of(mpi)) &&
        fs::exists(fs::path(ORRERY_PROGRAM).parent_path() / ("liborrery_" + std::string(mpi) + ".so")))
      all.push_back(mpi);
  return all;
}

RunResult run_on_ranks(const std::string& folder, const Words& words, const FailingRank& rank, const Failure& failure) {
  Words command = {launcher_of(rank.mpi)};
  if (rank.mpi == "openmpi") command = command + Words{"--oversubscribe", "--bind-to", "none"};
  for (const int r : {0, 1}) {
    command = command + (r == 0 ? Words{"-n", "1"} : Words{":", "-n", "1"});
    if (r == rank.rank) command = command + Words{"env", "FAILURES_OWN=1"} + failing(failure);
    command = command + Words{ORRERY_PROGRAM} + words;
  }
  const Words environment = {"PATH=/usr/bin:/bin", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                             "OMPI_MCA_plm_rsh_agent=false"};
  RunResult ran = start(folder, command, environment, seconds_for(failure));
  ran.err = without_remarks(ran.err);
  if (rank.mpi == "mpich" && ran.code == SIGKILL) ran.code = 1;  // it had not joined the others: end_with_others
  constexpr int tenths_to_end = 20;
  for (int i = 0; i < tenths_to_end && !processes_in(folder).empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  for (const pid_t process : processes_in(folder)) ::kill(process, SIGKILL), ++ran.left;
  return ran;
}

RunResult run_shell(const std::string& folder, const std::string& command, const std::string& plugin) {
  const std::string program = "orrery() { LD_PRELOAD='" FAULT_INJECTION_INTERPOSER "' FAILURES_PLUGIN='" + plugin +
                              "' '" ORRERY_PROGRAM "' \"$@\"; }\n";
  return start(folder, {"/bin/sh", "-c", program + command}, {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, seconds_allowed);
}

std::string wrong_end(const RunResult& ran) {
  if (ran.code == 124) return "hangs: " + ran.err;
  if (ran.left > 0) return "leaves " + std::to_string(ran.left) + " processes: " + ran.err;
  if (ran.code != 0 && ran.code != 1) return "ends with " + std::to_string(ran.code) + ": " + ran.err;
  if (ran.code == 0) return {};
  std::string sentence;
  std::istringstream lines(ran.err);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("orrery: ")) continue;
    if (!sentence.empty()) return "two error messages: " + ran.err;
    sentence = line;
  }
  // A check that ran out of memory is listed among the other checks, with its reason.
  if (sentence.empty() && ran.out.find("\nFAILED: ") != std::string::npos &&
      ran.out.find("out of memory") != std::string::npos)
    return {};
  if (sentence.size() < 20) return "no error message: " + ran.err + ran.out.substr(0, 3000);
  for (const char* word : {"std::", "bad_alloc", "basic_", "filesystem error", "json.exception", "what()", "terminate",
                           "pthread_create", "iostream error"})
    if (ran.err.find(word) != std::string::npos) return std::string("prints '") + word + "': " + ran.err;
  return {};
}

namespace {

// Removes differences between an uninterrupted and a resumed run: how it started, whether it was
// validated when interrupted, and the hash.
std::string without_environment(const std::string& state) {
  auto json = nlohmann::ordered_json::parse(state, nullptr, false);
  if (!json.is_object() || !json["settings"].is_object()) return state;
  for (const char* key : {"validation_loss", "sha256"}) json.erase(key);
  for (const char* key : {"resume", "from_previous"}) json["settings"].erase(key);
  return json.dump();
}

}  // namespace

std::map<std::string, std::string> files_of(const std::string& folder) {
  std::map<std::string, std::string> all;
  if (!fs::exists(folder)) return all;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = fs::relative(entry.path(), folder).string();
    const bool clock = name.ends_with("metrics.jsonl");
    std::string& bytes = all[name] = entry.is_regular_file() && !clock ? contents(entry.path().string()) : "";
    if (name.ends_with("state.json")) bytes = without_environment(bytes);
  }
  return all;
}

}  // namespace fault_injection
