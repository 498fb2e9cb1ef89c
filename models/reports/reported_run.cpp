#include "models/reports/reported_run.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "engine/system/files.h"
#include "models/catalogue/plugins.h"
#include "models/study/run_contents.h"
#include "models/training/run_folder.h"

namespace orrery::models {
namespace {

// Reads the newest checkpoint and its state.
void read_checkpoint(ReportedRun& run) {
  if (!holds_checkpoints(run.folder)) return;
  try {
    read_newest([&] { return run.newest = latest_checkpoint(run.folder, true); },
                [&](const std::string& newest) {
                  run.best = best_checkpoint(run.folder);
                  if (run.best.empty()) run.best = newest;
                  run.state = read_state(newest);
                  run.version_note = version_note(run.folder, run.state->version);
                  run.settings =
                      with_plugin_hint(run.folder, [&] { return resolved(make_settings(run.state->settings)); });
                  return true;
                });
  } catch (const Error& error) {
    run.newest.clear(), run.best.clear(), run.state.reset();
    run.notes.push_back(error.what());
  }
}

}  // namespace

int64_t ReportedRun::last_step() const { return std::max(state ? state->step : 0, logged); }

std::string ReportedRun::setting(const std::string& key) const { return settings ? setting_of(*settings, key) : ""; }

ReportedRun read_reported_run(const std::string& folder) {
  ReportedRun run;
  run.folder = without_last_slashes(folder);
  run.name = std::filesystem::path(run.folder).filename().string();
  if (file_exists(folder + "/metrics.jsonl")) run.log = RunLog::of_run(folder);
  run.log.each([&](const LogRow& row) { run.logged = std::max(run.logged, row.step); });
  read_checkpoint(run);
  if (const std::string file = folder + "/settings.toml"; !run.settings && file_exists(file)) try {
      run.settings = with_plugin_hint(folder, [&] { return resolved(settings_in_file(file)); });
    } catch (const Error& error) {
      run.notes.push_back(error.what());
    }
  return run;
}

void distinguish_names(std::vector<ReportedRun>& runs) {
  std::map<std::string, int> times;
  for (const ReportedRun& run : runs) ++times[run.name];
  for (ReportedRun& run : runs)
    if (times[run.name] > 1) run.name = run.folder;
}

}  // namespace orrery::models
