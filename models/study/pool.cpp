#include "models/study/pool.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>

#include "engine/base/check.h"
#include "engine/base/files.h"
#include "engine/base/hash.h"
#include "models/data/unicode.h"
#include "models/folder_lock.h"
#include "models/json.h"
#include "models/settings_file.h"
#include "models/study/runs.h"

namespace orrery::models {
namespace {

namespace fs = std::filesystem;

// The files and the folder of a run. What makes it a run comes last: a removal that was interrupted can be repeated.
constexpr const char* ends[] = {".json", "", ".log", ".toml"};

std::string folder_of_uses(const std::string& pool) { return pool + "/used_by"; }

uint64_t bytes_at(const std::string& path) {
  std::error_code none;  // a program that trains the run may remove a file meanwhile
  const auto size_of = [&](const fs::directory_entry& entry) {
    const uint64_t size = !entry.is_symlink(none) && entry.is_regular_file(none) ? entry.file_size(none) : 0;
    return none ? 0 : size;
  };
  const fs::directory_entry top(path, none);
  if (none || top.is_symlink(none) || !top.is_directory(none)) return none ? 0 : size_of(top);
  uint64_t bytes = 0;
  for (auto at = fs::recursive_directory_iterator(path, none); !none && at != fs::recursive_directory_iterator();
       at.increment(none))
    bytes += size_of(*at);
  return bytes;
}

std::string state_of(const std::string& outcome_file) {
  try {
    const std::optional<Outcome> outcome = read_outcome(outcome_file);
    return outcome ? name(outcome->kind) : "unfinished";
  } catch (const Error&) {
    return "damaged";
  }
}

}  // namespace

std::vector<PooledFiles> runs_in_pool(const std::string& pool) {
  std::vector<PooledFiles> all;
  if (!folder_exists(pool)) return all;
  for (const std::string& path : files_in(pool)) {
    const std::string id = fs::path(path).stem().string(), base = pool + "/" + id;
    if (!path.ends_with(".toml") || !is_run_id(id) || !is_written_settings_file(path)) continue;
    PooledFiles run{.id = id, .state = state_of(base + ".json")};
    for (const char* end : ends) run.bytes += bytes_at(base + end);
    all.push_back(std::move(run));
  }
  return all;
}

PoolUses uses_of_pool(const std::string& pool) {
  PoolUses all;
  if (!folder_exists(folder_of_uses(pool))) return all;
  for (const std::string& path : files_in(folder_of_uses(pool))) try {
      if (!path.ends_with(".json")) continue;
      const Json json = parse_json(read_file(path, largest_json), path);
      const fs::path folder = fs::weakly_canonical(pool) / text_member(json, "folder", path);
      const fs::path normal = folder.lexically_normal();
      std::error_code none;
      const std::string user = (fs::path(pool).is_absolute() ? normal : fs::proximate(normal, none)).string();
      const Json& runs = member(json, "runs", path);
      check(runs.is_array(), path, ": 'runs' must be a list");
      for (const Json& run : runs) {
        check(run.is_string(), path, ": 'runs' must be a list of texts");
        if (folder_exists(user)) all[user].insert(run.get<std::string>());
      }
    } catch (const Error& error) {
      fail(error.what(), "; it says which runs a sweep or study uses: remove the file, and repeat that sweep or study");
    }
  return all;
}

std::vector<std::string> users_of(const PoolUses& uses, const std::string& id) {
  std::vector<std::string> all;
  for (const auto& [user, runs] : uses)
    if (runs.contains(id)) all.push_back(user);
  return all;
}

void record_use(const std::string& pool, const std::string& folder, const std::set<std::string>& runs) {
  make_folders(folder_of_uses(pool));
  const std::string user = fs::relative(folder, pool).generic_string();  // both are there
  check_utf8(user, text("runs: the path from ", pool, " to ", folder, ", ", user, ","), "rename that folder");
  const Json json = {{"folder", user}, {"runs", runs}};
  write_file_atomically(folder_of_uses(pool) + "/" + sha256(std::as_bytes(std::span(user))).substr(0, 16) + ".json",
                        json.dump(1) + "\n");
}

bool remove_from_pool(const std::string& pool, const std::string& id, bool even_if_used) {
  const std::string base = pool + "/" + id, lock_file = base + ".lock";
  const FileLock lock(lock_file, {"runs", "--runs"});
  if (!lock.held()) return false;
  if (!even_if_used && !users_of(uses_of_pool(pool), id).empty()) return false;
  for (const char* end : ends) fs::remove_all(base + end);
  fs::remove(lock_file);
  return true;
}

}  // namespace orrery::models
