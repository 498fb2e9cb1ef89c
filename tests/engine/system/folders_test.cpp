// Folders: existence and removal.
#include "engine/system/folders.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "engine/system/files.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"

using namespace orrery;
using orrery::testing::expect_error;
using orrery::testing::Folder;

TEST_CASE("folders: a path is removed with its contents, without following links") {
  const Folder folder;
  make_folders(folder / "kept"), make_folders(folder / "removed/inside");
  write_file_atomically(folder / "kept/file", "kept"), write_file_atomically(folder / "removed/inside/file", "removed");
  std::filesystem::create_symlink(folder / "kept", folder / "removed/link");
  std::filesystem::create_symlink(folder / "nowhere", folder / "dangling");
  CHECK(path_exists(folder / "dangling"));
  remove_with_contents(folder / "removed"), remove_with_contents(folder / "dangling");
  remove_with_contents(folder / "nowhere");  // does not exist
  CHECK(!path_exists(folder / "removed"));
  CHECK(!path_exists(folder / "dangling"));
  CHECK(read_file(folder / "kept/file") == "kept");
}

TEST_CASE("folders: a failed removal is an error with the path and the reason") {
  const Folder folder;
  const std::string path = folder / std::string(300, 'x');
  expect_error([&] { remove_with_contents(path); }).names("remove").value(path).offers("File name too long");
}
