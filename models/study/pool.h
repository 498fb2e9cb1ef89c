// The folder of runs that sweeps and studies share (runs.h): its contents and the uses of a run.
//
//   pool/used_by/0123456789abcdef.json    a sweep or study: its folder relative to the pool, the ids of its runs, and
//                                         those of an earlier sweep or study whose folder had this path
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace orrery::models {

struct StoredRun {  // files of a run
  std::string id;
  uint64_t bytes = 0;
  std::string state;  // done, diverged, failed, unfinished, or damaged
};
// Returns the runs of a pool, by id. Does not follow links.
std::vector<StoredRun> runs_in_pool(const std::string& pool);
// Returns whether the folder has runs of a pool, or records of the sweeps and studies that use it.
bool is_pool(const std::string& folder);

// Returns the ids of runs that began but have no outcome, such as interrupted runs.
std::vector<std::string> unfinished_runs(const std::string& pool);

// A sweep or study that has a record in the pool.
struct PoolUser {
  std::set<std::string> runs = {};     // ids
  std::set<std::string> earlier = {};  // ids of an earlier sweep or study at this path; it may have been moved
  bool missing = false;                // its folder was moved or removed
};
using PoolUses = std::map<std::string, PoolUser>;  // key: the folder
PoolUses uses_of_pool(const std::string& pool);  // reads the records of record_use

// unknown: a sweep or study may use the run; it was moved, or an older version recorded no uses.
enum class RunUse { unused, unknown, used };
struct RunUsers {
  RunUse use = RunUse::unused;
  std::vector<std::string> names = {};  // folders; with the reason if the use is unknown
};
RunUsers users_of(const PoolUses& uses, const std::string& id);  // of one run

// Records that the sweep or study in `folder` uses these runs and no others.
void record_use(const std::string& pool, const std::string& folder, const std::set<std::string>& runs);

// Removes all files of a run; returns false if a program trains it or its use exceeds `max_use`.
// Errors begin with "runs".
bool remove_from_pool(const std::string& pool, const std::string& id, RunUse max_use);

}  // namespace orrery::models
