#include "models/study/reported_run.h"

#include <algorithm>
#include <filesystem>

#include "engine/base/files.h"
#include "models/settings_file.h"
#include "models/training/run_folder.h"

namespace orrery::models {
namespace {

TrainSettings settings_in(const std::string& file) {
  const std::string model = value_in_settings_file(file, "model").value_or(TrainSettings().model);
  TrainSettings scratch(model, value_in_settings_file(file, "task").value_or(""));
  return resolved(make_settings(read_settings_file(file, settings_of(scratch), nanogpt_keys())));
}

// The newest checkpoint and its state.  One that a run at work removes meanwhile has a newer one beside it.
void read_checkpoint(ReportedRun& run) {
  for (int attempt = 1;; ++attempt) try {
      run.newest = latest_checkpoint(run.folder, true);
      if (run.newest.empty()) return;
      run.best = best_checkpoint(run.folder);
      if (run.best.empty()) run.best = run.newest;
      run.state = read_state(run.newest);
      run.settings = resolved(make_settings(run.state->settings));
      return;
    } catch (const Error& error) {
      if (attempt < 10 && !run.newest.empty() && !folder_exists(run.newest)) continue;
      run.newest.clear(), run.best.clear(), run.state.reset();
      run.notes.push_back(error.what());
      return;
    }
}

}  // namespace

int64_t ReportedRun::last_step() const {
  int64_t step = state ? state->step : 0;
  for (const LogRow& row : log) step = std::max(step, row.step);
  return step;
}

bool is_run_folder(const std::string& folder) {
  return folder_exists(folder) && (file_exists(folder + "/metrics.jsonl") || file_exists(folder + "/settings.toml") ||
                                   holds_checkpoints(folder));
}

ReportedRun read_reported_run(const std::string& folder) {
  ReportedRun run;
  run.folder = folder;
  while (run.folder.size() > 1 && run.folder.ends_with('/')) run.folder.pop_back();
  run.name = std::filesystem::path(run.folder).filename().string();
  if (file_exists(folder + "/metrics.jsonl")) run.log = read_run_log(folder);
  read_checkpoint(run);
  if (const std::string file = folder + "/settings.toml"; !run.settings && file_exists(file)) try {
      run.settings = settings_in(file);
    } catch (const Error& error) {
      run.notes.push_back(error.what());
    }
  return run;
}

}  // namespace orrery::models
