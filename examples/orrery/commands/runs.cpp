// orrery runs: lists the runs that sweeps and studies share, and removes unneeded ones.
#include <algorithm>
#include <iostream>

#include "engine/settings/registry.h"
#include "engine/system/files.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/commands/run_rows.h"
#include "examples/orrery/terminal/arguments.h"
#include "examples/orrery/terminal/table.h"
#include "models/formats/shell_words.h"
#include "models/study/pool.h"

namespace orrery::program {
namespace {

using models::PooledFiles;
using models::RunUse;
using models::users_of;

struct RunsSettings {
  std::string runs = "runs/pool";
  bool prune = false, maybe_used = false;

  template <class V>
  void visit(V& v) {
    v("runs", runs, "folder of the runs that sweeps and studies share");
    v("prune", prune, "remove the named runs, else those that no sweep or study uses; no: only list");
    v("maybe_used", maybe_used,
      "with --prune: also runs with unknown use (folder moved or removed, or an older version)");
  }
};

uint64_t bytes_of(const std::vector<PooledFiles>& runs) {
  uint64_t bytes = 0;
  for (const PooledFiles& run : runs) bytes += run.bytes;
  return bytes;
}

std::string count_text(const std::vector<PooledFiles>& runs) {
  return text(counted(static_cast<int64_t>(runs.size()), "run"), ", ", megabytes(static_cast<double>(bytes_of(runs))),
              " MB");
}

std::string listing(const std::string& pool) { return models::command_line({"runs", "--runs=" + pool}); }

// Returns the runs with this use.
std::vector<PooledFiles> runs_of_use(const std::vector<PooledFiles>& all, const models::PoolUses& uses, RunUse use) {
  std::vector<PooledFiles> chosen;
  for (const PooledFiles& run : all)
    if (users_of(uses, run.id).use == use) chosen.push_back(run);
  return chosen;
}

std::vector<PooledFiles> named_runs(const std::vector<PooledFiles>& all, const std::vector<std::string>& ids,
                                    const std::string& pool) {
  std::vector<PooledFiles> chosen;
  std::vector<std::string> known;
  for (const PooledFiles& run : all) {
    known.push_back(run.id);
    if (std::find(ids.begin(), ids.end(), run.id) != ids.end()) chosen.push_back(run);
  }
  for (const std::string& id : ids) {
    if (std::find(known.begin(), known.end(), id) != known.end()) continue;
    const std::string meant = nearest(id, known);
    fail("runs: ", pool, " has no run ", id, "; ",
         meant.empty() ? listing(pool) + " lists them" : "did you mean '" + meant + "'?");
  }
  return chosen;
}

// Describes runs that may be in use by sweeps or studies missing from the pool's records.
std::string unknown_text(const std::vector<PooledFiles>& unknown) {
  if (unknown.empty()) return "";
  return "use unknown: " + count_text(unknown) +
         "; the folder of their sweep or study was moved or removed, or an older version trained them; "
         "--prune --maybe_used removes them\n";
}

int prune(const std::vector<PooledFiles>& runs, const std::string& pool, RunUse most) {
  std::vector<PooledFiles> removed, kept;
  for (const PooledFiles& run : runs) (models::remove_from_pool(pool, run.id, most) ? removed : kept).push_back(run);
  for (const PooledFiles& run : kept) std::cout << run.id << " is kept, because a program is training or using it\n";
  std::cout << "removed from " << for_terminal(pool) << ": " << count_text(removed) << std::endl;
  return kept.empty() ? 0 : 1;
}

int prune_unused(const std::vector<PooledFiles>& all, const models::PoolUses& uses, const RunsSettings& s) {
  std::vector<PooledFiles> chosen = runs_of_use(all, uses, RunUse::unused);
  const std::vector<PooledFiles> unknown = runs_of_use(all, uses, RunUse::unknown);
  if (s.maybe_used)
    chosen.insert(chosen.end(), unknown.begin(), unknown.end());
  else
    std::cout << unknown_text(unknown);
  return prune(chosen, s.runs, s.maybe_used ? RunUse::unknown : RunUse::unused);
}

}  // namespace

std::string pool_line(const std::string& pool) {
  return text("pool: ", for_terminal(pool), " has ", count_text(models::runs_in_pool(pool)), "; ", listing(pool),
              " lists them\n");
}

CommandHelp runs_help(const Arguments&) {
  RunsSettings settings;
  return {
      "Lists the runs of a pool with their sizes and the sweeps and studies that use them.  A run whose sweep or "
      "study was moved or removed is kept unless --maybe_used is given.  A removed run is trained again when it is "
      "needed.",
      describe(settings_of(settings)),
      "The exit code is 1 if a run could not be removed because a program trains or uses it.",
      "orrery runs; orrery runs --prune"};
}

int runs(const Arguments& arguments) {
  RunsSettings s;
  const std::vector<std::string> ids = read_arguments("runs", arguments, settings_of(s));
  check(folder_exists(s.runs), "runs: there is no folder ", s.runs,
        "; train a sweep or study first, or give its --runs");
  const models::PoolUses uses = models::uses_of_pool(s.runs);
  const std::vector<PooledFiles> all = models::runs_in_pool(s.runs),
                                 shown = ids.empty() ? all : named_runs(all, ids, s.runs);
  if (s.prune) return ids.empty() ? prune_unused(all, uses, s) : prune(shown, s.runs, RunUse::used);
  Table table({"run", "MB", "state", "used by"}, "lrll");
  for (const PooledFiles& run : shown)
    table.add({run.id, megabytes(static_cast<double>(run.bytes)), run.state, join(users_of(uses, run.id).names)});
  std::cout << table.print() << for_terminal(s.runs) << ": " << count_text(all) << "\n";
  if (ids.empty())
    std::cout << "used by no sweep or study: " << count_text(runs_of_use(all, uses, RunUse::unused))
              << "; --prune removes them\n"
              << unknown_text(runs_of_use(all, uses, RunUse::unknown));
  std::cout << std::flush;
  return 0;
}

}  // namespace orrery::program
