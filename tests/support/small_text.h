#pragma once

#include <string>

#include "engine/system/files.h"
#include "tests/support/folder.h"

namespace orrery::testing {

// Writes a text that a small model fits in a few steps. Returns its path.
inline std::string write_small_text(const Folder& folder, int sentences = 200) {
  std::string all;
  for (int i = 0; i < sentences; ++i)
    all += "the quick fox number " + std::to_string(i * 7919 % 100) + " jumps over the lazy dog.\n";
  write_file_atomically(folder / "text.txt", all);
  return folder / "text.txt";
}

}  // namespace orrery::testing
