#include "models/study/run_contents.h"

#include "engine/system/version.h"
#include "models/catalogue/plugins.h"
#include "models/settings/settings_file.h"
#include "models/training/metrics_log.h"
#include "models/training/run_folder.h"

namespace orrery::models {
namespace {

bool has_settings(const std::string& folder) {
  const std::string path = folder + "/settings.toml";
  return file_exists(path) && is_written_settings_file(path);
}

}  // namespace

bool is_run(const std::string& folder) {
  const std::string metrics = folder + "/metrics.jsonl";
  return has_settings(folder) || (file_exists(metrics) && is_metrics_file(metrics)) || holds_checkpoints(folder);
}

void check_is_run(const std::string& command, const std::string& folder) {
  check(folder_exists(folder), command, ": there is no folder ", folder, "; orrery train --out=DIR creates one");
  check(is_run(folder), command, ": ", folder,
        " is not the folder of a run: it has no settings.toml or metrics.jsonl of a run, and no checkpoint; give a "
        "folder that orrery train wrote");
}

void check_no_run(const std::string& command, const std::string& folder) {
  check_outside_checkpoints(command, folder);
  check(!folder_exists(folder) || !is_run(folder), command, ": --out=", folder,
        " is the folder of a run; choose another --out, such as ", folder, "/", command);
}

std::string version_note(const std::string& run, const std::string& version) {
  if (version.empty() || version == build().version) return "";
  return text(run, " was trained by orrery ", version, ", but this is orrery ", build().version,
              "; its results here may differ from those of that version");
}

TrainSettings settings_in_file(const std::string& path) {
  const auto word = [&](const char* key) { return value_in_settings_file(path, key); };
  TrainSettings known(word("model").value_or(TrainSettings().model), word("task").value_or(""));
  return make_settings(read_settings_file(path, settings_of(known)));
}

TrainSettings settings_of_run(const std::string& run_folder) {
  if (has_settings(run_folder))
    return with_plugin_hint(run_folder, [&] { return settings_in_file(run_folder + "/settings.toml"); });
  return read_newest([&] { return checkpoint_at(run_folder); },
                     [](const std::string& checkpoint) { return make_settings(read_state(checkpoint).settings); });
}

LossMeaning loss_meaning_of_run(const std::string& run_folder) {
  return read_newest([&] { return latest_checkpoint(run_folder, true); },
                     [&](const std::string& newest) {
                       return loss_meaning(settings_of_run(run_folder),
                                           newest.empty() ? CheckpointState() : read_state(newest));
                     });
}

}  // namespace orrery::models
