// Small runs for tests of process I/O and signals, and their checkpoints.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/examples/program.h"

inline std::vector<std::string> train_tiny(const Folder& folder, const std::vector<std::string>& more = {}) {
  return std::vector<std::string>{"train", "--data=" + folder.write("text.txt", tiny_text()),
                                  "--out=" + (folder / "run")} +
         tiny + more;
}

inline size_t checkpoints_in(const std::string& run) {
  size_t found = 0;
  if (std::filesystem::exists(run))
    for (const auto& entry : std::filesystem::directory_iterator(run))
      found += std::filesystem::exists(entry.path() / "state.json");
  return found;
}
