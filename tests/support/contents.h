#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

namespace orrery::testing {

// Returns the bytes of a file; none if it cannot be read.
inline std::string contents(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Returns the bytes of each file in a folder and its subfolders, by path.
inline std::map<std::string, std::string> contents_of_folder(const std::filesystem::path& folder) {
  std::map<std::string, std::string> all;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) all[entry.path().string()] = contents(entry.path());
  return all;
}

}  // namespace orrery::testing
