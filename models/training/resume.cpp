#include "models/training/resume.h"

#include "engine/base/check.h"
#include "models/model.h"
#include "models/settings_file.h"
#include "models/shell_words.h"

namespace orrery::models {
namespace {

// A run that went on with other data recorded those; a run of before recorded none.
void check_same_data(const TrainSettings& now, const TrainSettings& then, const CheckpointState& before,
                     const Task& task) {
  const Fingerprint found = task.fingerprint();
  if (now.other_text || before.text.sha256.empty() || before.text == found) return;
  fail("train: ", task.data(), " (", found.bytes, " bytes, SHA-256 ", found.sha256.substr(0, 12), "...) is not the ",
       task.kind(), " that the run in ", now.out, " learned, which was ",
       setting_of<std::string>(then.task_settings, "data"), " (", before.text.bytes, " bytes, SHA-256 ",
       before.text.sha256.substr(0, 12),
       "...); resume it with that one, or add --other_text=yes to go on with this one");
}

}  // namespace

bool names_a_run(std::string_view value) {
  return value != "yes" && value != "no" && value != "true" && value != "false" && value != "True" && value != "False";
}

std::string command_to_resume(const std::string& run, const std::vector<std::string>& more) {
  std::string line = "orrery train";
  for (const std::string& plugin : plugins_of_settings_file(run + "/settings.toml")) line += " " + plugin;
  line += " " + quoted_for_a_shell("--resume=" + (names_a_run(run) ? run : "./" + run));
  for (const std::string& word : more) line += " " + quoted_for_a_shell(word);
  return line;
}

void check_same_run(const TrainSettings& now, const CheckpointState& before, const Task& task) {
  const TrainSettings then = make_settings(before.settings);
  check(then.dtype == now.dtype, "train: the run in ", now.out, " has dtype=", then.dtype, ", not ", now.dtype,
        "; resume it with its own");
  const auto check_same = [&](const std::string& key, const std::string& its, const std::string& ours) {
    check(its == ours, "train: the run in ", now.out, " has ", key, "=", its, ", not ", ours,
          "; resume it with its own settings: ", command_to_resume(now.out));
  };
  check_same("task", then.task, now.task);
  const TrainSettings its = resolved(then), ours = resolved(now);
  const std::vector<Setting> before_model = its.model_settings.members(), model = ours.model_settings.members();
  check_same("model", named_model(then.model).of.name, named_model(now.model).of.name);
  for (size_t i = 0; i < model.size(); ++i)
    if (model[i].key != "dropout")  // no part of the model
      check_same(model[i].key, print_value(before_model[i]), print_value(model[i]));
  const std::vector<Setting> before_task = its.task_settings.members();
  const std::vector<Setting> our_task = ours.task_settings.members();
  for (const char* decides_the_data : {"tokenizer", "problem"})
    if (const Setting* const then_set = find_setting(before_task, decides_the_data))
      check_same(decides_the_data, print_value(*then_set), print_value(*find_setting(our_task, decides_the_data)));
  check_same_data(now, then, before, task);
}

}  // namespace orrery::models
