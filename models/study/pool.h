// The folder of runs that sweeps and studies share (runs.h): what it contains, and which sweeps and studies use a run.
//
//   pool/used_by/0123456789abcdef.json    a sweep or study: its folder as seen from the pool, and the ids of its runs
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

// The ids of the runs that each sweep and study uses, by its folder. One whose folder was removed uses none.
using PoolUses = std::map<std::string, std::set<std::string>>;
PoolUses uses_of_pool(const std::string& pool);
std::vector<std::string> users_of(const PoolUses& uses, const std::string& id);

// Records that the sweep or study with that folder uses these runs and no others.
void record_use(const std::string& pool, const std::string& folder, const std::set<std::string>& runs);

// Removes all files of a run; false if a program trains it, or if it is used and not `even_if_used`. Errors begin with
// "runs".
bool remove_from_pool(const std::string& pool, const std::string& id, bool even_if_used);

}  // namespace orrery::models
