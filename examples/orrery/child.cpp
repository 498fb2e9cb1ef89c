#include "examples/orrery/child.h"

#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/files.h"
#include "engine/base/open_file.h"
#include "engine/base/proc.h"
#include "models/study/plugins.h"

extern char** environ;

namespace orrery::program {

pid_t begin_child(const std::string& command, Arguments words, const std::string& log, int held) {
  for (const models::Plugin& plugin : models::noted_plugins()) words.insert(words.begin(), "--plugin=" + plugin.path);
  words.insert(words.begin(), "orrery");
  const std::string program = proc_path(command + ": beginning a run", "/proc/self/exe");
  const Descriptor printed(open_unlinked(log, O_WRONLY | O_TRUNC));
  check(printed.number() >= 0, command, ": cannot write ", log, ": ", std::strerror(errno));
  std::vector<char*> raw;
  for (std::string& word : words) raw.push_back(word.data());
  raw.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  for (const int stream : {1, 2}) ::posix_spawn_file_actions_adddup2(&actions, printed.number(), stream);
  constexpr int its_own = 3;
  if (held >= 0) ::posix_spawn_file_actions_adddup2(&actions, held, its_own);
  posix_spawnattr_t own_group;
  ::posix_spawnattr_init(&own_group);
  ::posix_spawnattr_setflags(&own_group, POSIX_SPAWN_SETPGROUP);
  pid_t process = 0;
  const int error = ::posix_spawn(&process, program.c_str(), &actions, &own_group, raw.data(), environ);
  ::posix_spawnattr_destroy(&own_group);
  ::posix_spawn_file_actions_destroy(&actions);
  check(error == 0, command, ": cannot begin a run: ", std::strerror(error));
  return process;
}

std::string complaint_in(const std::string& log) {
  std::istringstream in(file_exists(log) ? read_file(log) : "");
  std::string last;
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("orrery: ")) last = line.substr(8);
  return last;
}

}  // namespace orrery::program
