// orrery runs: lists the runs below a folder; lists the runs that sweeps and studies share, and
// removes unneeded ones.
#include <algorithm>
#include <iostream>

#include "engine/settings/registry.h"
#include "engine/system/files.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/commands/run_table.h"
#include "examples/orrery/commands/runs_table.h"
#include "examples/orrery/terminal/arguments.h"
#include "examples/orrery/terminal/json_output.h"
#include "examples/orrery/terminal/messages.h"
#include "examples/orrery/terminal/progress.h"
#include "examples/orrery/terminal/table.h"
#include "models/formats/shell_words.h"
#include "models/study/pool.h"

namespace orrery::program {
namespace {

using models::RunUse;
using models::StoredRun;
using models::users_of;

constexpr const char* default_pool = "runs/pool";

struct RunsSettings {
  std::string runs;
  bool prune = false, maybe_used = false, json = false;

  template <class V>
  void visit(V& v) {
    v("runs", runs,
      text("list the runs of this pool, which sweeps and studies share, with sizes and uses; --prune: ", default_pool,
           " if none is given"));
    v("prune", prune, "remove the named runs of the pool, else those that no sweep or study uses; no: only list");
    v("maybe_used", maybe_used,
      "with --prune: also runs with unknown use (folder moved or removed, or an older version)");
    v("json", json, json_help);
  }
};

uint64_t bytes_of(const std::vector<StoredRun>& runs) {
  uint64_t bytes = 0;
  for (const StoredRun& run : runs) bytes += run.bytes;
  return bytes;
}

std::string size_text(int64_t runs, uint64_t bytes) {
  return text(pluralize(runs, "run"), ", ", megabytes(static_cast<double>(bytes)), " MB");
}
std::string size_text(const std::vector<StoredRun>& runs) {
  return size_text(static_cast<int64_t>(runs.size()), bytes_of(runs));
}

std::string list_command(const std::string& pool) { return models::command_line({"runs", "--runs=" + pool}); }

// Returns the runs with this use.
std::vector<StoredRun> runs_of_use(const std::vector<StoredRun>& all, const models::PoolUses& uses, RunUse use) {
  std::vector<StoredRun> chosen;
  for (const StoredRun& run : all)
    if (users_of(uses, run.id).use == use) chosen.push_back(run);
  return chosen;
}

std::vector<StoredRun> named_runs(const std::vector<StoredRun>& all, const std::vector<std::string>& ids,
                                  const std::string& pool) {
  std::vector<StoredRun> chosen;
  std::vector<std::string> known;
  for (const StoredRun& run : all) {
    known.push_back(run.id);
    if (std::find(ids.begin(), ids.end(), run.id) != ids.end()) chosen.push_back(run);
  }
  for (const std::string& id : ids) {
    if (std::find(known.begin(), known.end(), id) != known.end()) continue;
    const std::string meant = nearest(id, known);
    fail("runs: ", pool, " has no run ", id, "; ",
         meant.empty() ? list_command(pool) + " lists them" : "did you mean '" + meant + "'?");
  }
  return chosen;
}

// Describes runs that may be in use by sweeps or studies missing from the pool's records.
std::string unknown_text(const std::vector<StoredRun>& unknown) {
  if (unknown.empty()) return "";
  return "use unknown: " + size_text(unknown) +
         "; the folder of their sweep or study was moved or removed, or an older version trained them; "
         "--prune --maybe_used removes them\n";
}

Json ids_json(const std::vector<StoredRun>& runs) {
  Json ids = Json::array();
  for (const StoredRun& run : runs) ids.push_back(run.id);
  return ids;
}

int prune(const std::vector<StoredRun>& runs, const std::string& pool, RunUse max_use, JsonOutput& json) {
  std::vector<StoredRun> removed, kept;
  for (const StoredRun& run : runs) (models::remove_from_pool(pool, run.id, max_use) ? removed : kept).push_back(run);
  for (const StoredRun& run : kept) print_message(run.id + " is kept, because a program is training or using it");
  std::cout << "removed from " << for_terminal(pool) << ": " << size_text(removed) << std::endl;
  if (json)
    json.print(
        {{"pool", pool}, {"removed", ids_json(removed)}, {"kept", ids_json(kept)}, {"bytes", bytes_of(removed)}});
  return kept.empty() ? 0 : 1;
}

int prune_unused(const std::vector<StoredRun>& all, const models::PoolUses& uses, const RunsSettings& s,
                 JsonOutput& json) {
  std::vector<StoredRun> chosen = runs_of_use(all, uses, RunUse::unused);
  const std::vector<StoredRun> unknown = runs_of_use(all, uses, RunUse::unknown);
  if (s.maybe_used)
    chosen.insert(chosen.end(), unknown.begin(), unknown.end());
  else
    std::cout << unknown_text(unknown);
  return prune(chosen, s.runs, s.maybe_used ? RunUse::unknown : RunUse::unused, json);
}

void print_pool(const std::vector<StoredRun>& runs, const models::PoolUses& uses) {
  Table table({"run", "MB", "state", "used by"}, "lrll");
  for (const StoredRun& run : runs)
    table.add({run.id, megabytes(static_cast<double>(run.bytes)), run.state, join(users_of(uses, run.id).names)});
  std::cout << table.print();
}

Json pool_json(const std::string& pool, const std::vector<StoredRun>& runs, const models::PoolUses& uses) {
  Json all = Json::array();
  for (const StoredRun& run : runs) {
    const models::RunUsers users = users_of(uses, run.id);
    const char* const use = users.use == RunUse::used ? "used" : users.use == RunUse::unused ? "unused" : "unknown";
    all.push_back(
        {{"run", run.id}, {"bytes", run.bytes}, {"state", run.state}, {"use", use}, {"used_by", users.names}});
  }
  return {{"pool", pool}, {"runs", all}};
}

int run_on_pool(const RunsSettings& s, const std::vector<std::string>& ids, JsonOutput& json) {
  check(folder_exists(s.runs), "runs: there is no folder ", s.runs,
        "; train a sweep or study first, or give its --runs");
  check(models::is_pool(s.runs), "runs: ", s.runs, " is not a pool: it has no run of a sweep or study; ",
        models::command_line({"runs", s.runs}), " lists the runs below it, or give the --runs of a sweep or study");
  const models::PoolUses uses = models::uses_of_pool(s.runs);
  const std::vector<StoredRun> all = models::runs_in_pool(s.runs),
                               shown = ids.empty() ? all : named_runs(all, ids, s.runs);
  if (s.prune) return ids.empty() ? prune_unused(all, uses, s, json) : prune(shown, s.runs, RunUse::used, json);
  if (json) return json.print(pool_json(s.runs, shown, uses)), 0;
  print_pool(shown, uses);
  std::cout << for_terminal(s.runs) << ": " << size_text(all) << "\n";
  if (ids.empty())
    std::cout << "used by no sweep or study: " << size_text(runs_of_use(all, uses, RunUse::unused))
              << "; --prune removes them\n"
              << unknown_text(runs_of_use(all, uses, RunUse::unknown));
  std::cout << std::flush;
  return 0;
}

std::string line_of_pool(const models::ListedPool& pool) {
  return text("pool: ", for_terminal(pool.folder), " has ", size_text(pool.runs, pool.bytes), "; ",
              list_command(pool.folder), " lists them\n");
}

int list_folder(const std::vector<std::string>& folders, JsonOutput& json) {
  check_usage(folders.size() <= 1, "runs: ", folders.size(),
              " folders are given; give one, or name runs of a pool after --runs=POOL");
  const std::string folder = folders.empty() ? "runs" : without_last_slashes(folders[0]);
  check(folder_exists(folder), "runs: there is no folder ", folder,
        "; give the folder above your runs, or train one: orrery train --out=runs/mine");
  const auto read = [&] {
    const Progress progress("reading the runs below " + folder);
    return models::runs_below(folder);
  };
  const models::RunList list = read();
  if (json) return json.print(run_list_json(folder, list)), 0;
  std::cout << run_table(folder, list, std::min(terminal_columns(), size_t{80}));
  for (const models::ListedPool& pool : list.pools) std::cout << line_of_pool(pool);
  std::cout << std::flush;
  return 0;
}

}  // namespace

std::string pool_line(const std::string& pool) {
  const std::vector<StoredRun> runs = models::runs_in_pool(pool);
  return line_of_pool({pool, static_cast<int64_t>(runs.size()), bytes_of(runs)});
}

CommandHelp runs_help(const Arguments&) {
  RunsSettings settings;
  return {
      "orrery runs [FOLDER] lists the runs below a folder (if not given, runs), newest first, each with its model, "
      "settings that differ, last step, last and lowest validation loss (of a log above 8 MB: in its last 8 MB), age "
      "of the log and state.  A stopped run has a checkpoint of its last step; a failed one was ended by an error or a "
      "kill.  The pools of sweeps and studies are one line each.\n"
      "orrery runs --runs=POOL [RUN ...] lists the runs of a pool with their sizes and the sweeps and studies that "
      "use them.  A run whose sweep or study was moved or removed is kept unless --maybe_used is given.  A removed "
      "run is trained again when it is needed.",
      describe(settings_of(settings)),
      "The exit code is 1 if a run could not be removed because a program trains or uses it.",
      "orrery runs\norrery runs --runs=runs/pool\norrery runs --prune"};
}

int runs(const Arguments& arguments) {
  RunsSettings s;
  const std::vector<std::string> words = read_arguments("runs", arguments, settings_of(s));
  JsonOutput json(s.json);
  if (s.runs.empty() && (s.prune || s.maybe_used)) s.runs = default_pool;
  return s.runs.empty() ? list_folder(words, json) : run_on_pool(s, words, json);
}

}  // namespace orrery::program
