#include "models/study/pool.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>

#include "engine/system/files.h"
#include "engine/system/folder_lock.h"
#include "engine/system/folders.h"
#include "engine/system/hash.h"
#include "engine/types/check.h"
#include "models/formats/json.h"
#include "models/formats/unicode.h"
#include "models/settings/settings_file.h"
#include "models/study/runs.h"

namespace orrery::models {
namespace {

namespace fs = std::filesystem;

// The files and the folder of a run; settings last, so that an interrupted removal can be repeated.
constexpr const char* suffixes[] = {".json", "", ".log", ".toml"};

constexpr const char* earlier_key = "earlier";

std::string folder_of_uses(const std::string& pool) { return pool + "/used_by"; }

uint64_t bytes_at(const std::string& path) {
  std::error_code error;  // a program that trains the run may remove a file during this
  const auto size_of = [&](const fs::directory_entry& entry) {
    const uint64_t size = !entry.is_symlink(error) && entry.is_regular_file(error) ? entry.file_size(error) : 0;
    return error ? 0 : size;
  };
  const fs::directory_entry top(path, error);
  if (error || top.is_symlink(error) || !top.is_directory(error)) return error ? 0 : size_of(top);
  uint64_t bytes = 0;
  for (auto at = fs::recursive_directory_iterator(path, error); !error && at != fs::recursive_directory_iterator();
       at.increment(error))
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

// Returns the path of a sweep's or study's folder; the record stores it relative to the pool.
std::string user_of(const std::string& pool, const std::string& folder) {
  std::error_code problem;
  const fs::path canonical = fs::weakly_canonical(pool, problem);
  check(!problem, "runs: cannot find ", pool, ": ", problem.message());
  const fs::path normal = (canonical / folder).lexically_normal();
  return (fs::path(pool).is_absolute() ? normal : fs::proximate(normal, problem)).string();
}

std::string path_from(const std::string& pool, const std::string& folder) {
  std::error_code problem;
  const std::string path = fs::relative(folder, pool, problem).generic_string();  // both exist
  check(!problem, "runs: cannot find the path from ", pool, " to ", folder, ": ", problem.message());
  return path;
}

std::set<std::string> ids_member(const Json& json, const char* key, const std::string& path) {
  std::set<std::string> ids;
  for (const Json& id : list_member(json, key, path)) {
    check(id.is_string(), path, ": '", key, "' must be a list of texts");
    ids.insert(id.get<std::string>());
  }
  return ids;
}

// Returns the ids of a record to be replaced that an earlier sweep or study at this path may still
// use. A folder with runs.csv is the recorded folder; otherwise that folder was moved or removed.
std::set<std::string> earlier_runs(const std::string& record, const std::string& folder,
                                   const std::set<std::string>& runs) {
  std::set<std::string> earlier;
  try {
    if (!file_exists(record)) return earlier;
    const Json json = parse_json(read_file(record, max_json_bytes), record);
    if (json.contains(earlier_key)) earlier = ids_member(json, earlier_key, record);
    if (!file_exists(folder + "/runs.csv")) earlier.merge(ids_member(json, "runs", record));
  } catch (const Error&) {  // uses_of_pool reports a damaged record, which this one replaces
    return {};
  }
  for (const std::string& id : runs) earlier.erase(id);
  return earlier;
}

}  // namespace

std::vector<StoredRun> runs_in_pool(const std::string& pool) {
  std::vector<StoredRun> all;
  if (!folder_exists(pool)) return all;
  for (const std::string& path : files_in(pool)) {
    const std::string id = fs::path(path).stem().string(), base = pool + "/" + id;
    if (!path.ends_with(".toml") || !is_run_id(id) || !is_written_settings_file(path)) continue;
    StoredRun run{.id = id, .state = state_of(base + ".json")};
    for (const char* end : suffixes) run.bytes += bytes_at(base + end);
    all.push_back(std::move(run));
  }
  return all;
}

bool is_pool(const std::string& folder) {
  return folder_exists(folder_of_uses(folder)) || !runs_in_pool(folder).empty();
}

std::vector<std::string> unfinished_runs(const std::string& pool) {
  std::vector<std::string> ids;
  for (const std::string& path : files_in(pool)) {
    const std::string id = fs::path(path).filename().string();
    if (is_run_id(id) && folder_exists(path) && !file_exists(path + ".json")) ids.push_back(id);
  }
  return ids;
}

PoolUses uses_of_pool(const std::string& pool) {
  PoolUses all;
  if (!folder_exists(folder_of_uses(pool))) return all;
  for (const std::string& path : files_in(folder_of_uses(pool))) try {
      if (!path.ends_with(".json")) continue;
      const Json json = parse_json(read_file(path, max_json_bytes), path);
      const std::string user = user_of(pool, text_member(json, "folder", path));
      PoolUser& of = all[user];
      of.missing = !folder_exists(user);
      of.runs.merge(ids_member(json, "runs", path));
      if (json.contains(earlier_key)) of.earlier.merge(ids_member(json, earlier_key, path));
    } catch (const Error& error) {
      fail(error.what(),
           "; the file lists the runs that a sweep or study uses; remove it, and repeat that sweep or study");
    }
  return all;
}

RunUsers users_of(const PoolUses& uses, const std::string& id) {
  RunUsers users;
  const auto add = [&](RunUse use, const std::string& name) {
    users.use = std::max(users.use, use), users.names.push_back(name);
  };
  for (const auto& [folder, user] : uses) {
    if (user.runs.contains(id))
      add(user.missing ? RunUse::unknown : RunUse::used, user.missing ? folder + " (missing)" : folder);
    else if (user.earlier.contains(id))
      add(RunUse::unknown, "an earlier " + folder);
  }
  if (users.names.empty() && hash_of_id(id) == id) add(RunUse::unknown, "unknown (an older version)");
  return users;
}

void record_use(const std::string& pool, const std::string& folder, const std::set<std::string>& runs) {
  make_folders(folder_of_uses(pool));
  const std::string user = path_from(pool, folder);
  check_utf8(user, text("runs: the path from ", pool, " to ", folder, ", ", user, ","), "rename that folder");
  const std::string path = folder_of_uses(pool) + "/" + sha256(std::as_bytes(std::span(user))).substr(0, 16) + ".json";
  Json json = {{"folder", user}, {"runs", runs}};
  if (const auto earlier = earlier_runs(path, folder, runs); !earlier.empty()) json[earlier_key] = earlier;
  write_file_atomically(path, json_text(json, 1) + "\n");
}

bool remove_from_pool(const std::string& pool, const std::string& id, RunUse max_use) {
  const std::string base = pool + "/" + id, lock_file = base + ".lock";
  const FileLock lock(lock_file, {"runs", "--runs"});
  if (!lock.held()) return false;
  if (users_of(uses_of_pool(pool), id).use > max_use) return false;
  for (const char* end : suffixes) remove_with_contents(base + end);
  remove_with_contents(lock_file);
  return true;
}

}  // namespace orrery::models
