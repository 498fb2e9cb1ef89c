// The files of the tree with their texts.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/support/tree.h"

namespace orrery::testing {

struct File {
  std::string path;  // relative to the root of the tree, with /
  std::string text;
  std::string extension() const { return std::filesystem::path(path).extension().string(); }
  bool below(const std::string& folder) const { return path.starts_with(folder + "/"); }
  bool code() const {
    static const std::set<std::string> extensions{".h", ".cpp", ".cuh", ".cu"};
    return extensions.contains(extension());
  }
  bool header() const { return extension() == ".h" || extension() == ".cuh"; }
};
using Files = std::vector<File>;

inline File read(const std::filesystem::path& path) {
  return {std::filesystem::relative(path, source_root).generic_string(), contents(path)};
}

inline const Files& tree() {
  static const Files files = [] {
    const std::set<std::string> written{".h",  ".cpp",  ".cuh",   ".cu",   ".sh",  ".py",
                                        ".md", ".toml", ".cmake", ".html", ".css", ".js"};
    Files found;
    for (const char* folder : {"engine", "nn", "models", "cuda", "tests", "examples"})
      if (std::filesystem::exists(source_root / folder))
        for (const auto& entry : std::filesystem::recursive_directory_iterator(source_root / folder))
          if (entry.is_regular_file() && written.contains(entry.path().extension().string()))
            found.push_back(read(entry.path()));
    for (const char* file : {"CMakeLists.txt", "README.md", ".ci/run"})
      if (std::filesystem::exists(source_root / file)) found.push_back(read(source_root / file));
    std::sort(found.begin(), found.end(), [](const File& a, const File& b) { return a.path < b.path; });
    return found;
  }();
  return files;
}

}  // namespace orrery::testing
