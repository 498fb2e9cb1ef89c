// Sweeps of runs that train almost instantly, and the pool that they share.
#pragma once

#include <string>
#include <vector>

#include "tests/examples/study.h"

// Omits --steps of `tiny`: a key that is given twice would be a list.
inline std::vector<std::string> sweep_of(const Folder& folder, const std::vector<std::string>& more,
                                         const std::string& steps = "4") {
  std::vector<std::string> words = {"sweep", "--data=" + folder.write("text.txt", tiny_text()),
                                    "--out=" + (folder / "sweep"), "--runs=" + (folder / "pool"), "--steps=" + steps};
  for (const std::string& word : tiny)
    if (!word.starts_with("--steps")) words.push_back(word);
  return words + more;
}
// Returns the ids of the runs in the pool.
inline std::vector<std::string> runs_in(const Folder& folder) {
  std::vector<std::string> all;
  for (const auto& [run, time] : written_runs(folder / "pool")) all.push_back(run);
  return all;
}
// Returns shell lines that wait until `count` runs train; $runs holds their processes.
inline std::string wait_for_runs(const Folder& folder, int count) {
  return "for i in $(seq 600); do runs=$(cat " + (folder / "pool") +
         "/*/.orrery.lock 2>/dev/null); set -- $runs; [ $# -ge " + std::to_string(count) +
         " ] && break; sleep 0.05; done; ";
}
