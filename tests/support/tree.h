// The source tree, and text by lines.
#pragma once

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/contents.h"

namespace orrery::testing {

inline const std::filesystem::path source_root = ORRERY_SOURCE_DIR;

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace orrery::testing
