#include "engine/system/folders.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "engine/system/files.h"
#include "engine/types/check.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

// Returns true if `path` is a link to one of the `open` folders or to a folder that contains one.
bool leads_back(const std::string& path, const std::vector<std::string>& open) {
  std::error_code problem;
  return fs::is_symlink(path, problem) &&
         std::any_of(open.begin(), open.end(), [&](const std::string& one) { return contains_folder(path, one); });
}

// `open` lists the folders from the first one to the current one.
void add_files_below(std::vector<std::string>& open, std::vector<std::string>& all) {
  for (std::string& path : files_in(open.back())) {
    if (is_hidden(path)) continue;
    if (!folder_exists(path)) {
      all.push_back(std::move(path));
    } else if (!leads_back(path, open)) {
      open.push_back(std::move(path));
      add_files_below(open, all);
      open.pop_back();
    }
  }
}

}  // namespace

bool is_hidden(const std::string& path) { return fs::path(path).filename().string().starts_with('.'); }

bool contains_folder(const std::string& outer, const std::string& inner) {
  std::error_code of_outer, of_inner;
  const fs::path from = fs::canonical(outer, of_outer), to = fs::canonical(inner, of_inner);
  return !of_outer && !of_inner && std::mismatch(from.begin(), from.end(), to.begin(), to.end()).first == from.end();
}

std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> open = {folder}, all;
  add_files_below(open, all);
  return all;
}

bool path_exists(const std::string& path) {
  std::error_code problem;
  return fs::exists(fs::symlink_status(path, problem));
}

void remove_with_contents(const std::string& path) {
  std::error_code problem;
  fs::remove_all(path, problem);
  check(!problem, "write: cannot remove ", path, ": ", problem.message());
}

}  // namespace orrery
