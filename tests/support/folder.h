#pragma once

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace orrery::testing {

// A new temporary folder; the destructor removes it.
struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string form = (std::filesystem::temp_directory_path() / "orrery_XXXXXX").string();
    REQUIRE(::mkdtemp(form.data()) != nullptr);
    path = form;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  Folder(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return (path / name).string(); }
};

}  // namespace orrery::testing
