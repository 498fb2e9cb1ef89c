// The folder of runs that sweeps and studies share (runs.h): what it contains, and which sweeps and studies use a run.
//
//   pool/used_by/0123456789abcdef.json    a sweep or study: its folder as seen from the pool, the ids of its runs, and
//                                         those of an earlier sweep or study whose folder had this path
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace orrery::models {

struct PooledFiles {  // of a run
  std::string id;
  uint64_t bytes = 0;
  std::string state;  // done, diverged, failed, unfinished, or damaged
};
// The runs of a pool, by id. Links are not followed.
std::vector<PooledFiles> runs_in_pool(const std::string& pool);

// The ids of those that have begun and have no outcome, such as interrupted ones.
std::vector<std::string> unfinished_runs(const std::string& pool);

// A sweep or study by its record in the pool.
struct PoolUser {
  std::set<std::string> runs = {};     // ids
  std::set<std::string> earlier = {};  // ids of an earlier one at this path, which may have been moved
  bool missing = false;                // its folder was moved or removed
};
using PoolUses = std::map<std::string, PoolUser>;  // by the folder
PoolUses uses_of_pool(const std::string& pool);

// unknown: a sweep or study that was moved may use the run, or one of an older version, which recorded no uses.
enum class RunUse { unused, unknown, used };
struct RunUsers {
  RunUse use = RunUse::unused;
  std::vector<std::string> names = {};  // each with the reason if its use is not known
};
RunUsers users_of(const PoolUses& uses, const std::string& id);

// Records that the sweep or study with that folder uses these runs and no others.
void record_use(const std::string& pool, const std::string& folder, const std::set<std::string>& runs);

// Removes all files of a run; returns false if a program trains it, or if its use is more than `most`. Errors begin
// with "runs".
bool remove_from_pool(const std::string& pool, const std::string& id, RunUse most);

}  // namespace orrery::models
