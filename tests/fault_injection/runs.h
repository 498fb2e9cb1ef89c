// A small run in each initial state of a command, and a check of what the command leaves.
#pragma once

#include <map>
#include <string>

#include "tests/fault_injection/trial.h"

namespace fault_injection {

// A temporary folder, removed with the object; in /dev/shm if possible: every run syncs its files.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

void copy_folder(const std::string& from, const std::string& to);

// Arguments for four steps on text.txt in run/, a checkpoint every second step; relative paths.
const Words& train_words();

// A run, in one process: the folder after its first checkpoint and at its end, and the files of its last one.
struct Undisturbed {
  Words words;
  std::string begun, done;
  std::map<std::string, std::string> last;
};

// Initial folders, made once.
struct Templates {
  ScratchFolder scratch;
  std::string fresh = scratch / "fresh", plugin = scratch / "plugin.so";
  Undisturbed one, ranks;  // ranks: with two parts of a step
  std::string begun, done;  // of one

  Templates();
  static const Templates& get();
};

// Returns "" if the run in folder/run after `ran` can be resumed by one process (or restarted, if nothing was
// saved) to identical bytes, else what is wrong.
std::string wrong_run(const std::string& folder, const RunResult& ran, const Undisturbed& its, bool had_checkpoint);

}  // namespace fault_injection
