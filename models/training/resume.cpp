#include "models/training/resume.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "engine/settings/loaded_plugins.h"
#include "engine/settings/registry.h"
#include "engine/types/usage_error.h"
#include "models/data/tokenizer.h"
#include "models/formats/shell_words.h"
#include "models/model.h"
#include "models/settings/settings_file.h"
#include "models/training/loss_settings.h"
#include "models/training/replay.h"

namespace orrery::models {
namespace {

// Settings that a resumed run may change. All others stay, those of the model and task too:
// otherwise the meaning of later log values or data would change.

// How the run trains, computes, logs and saves.
constexpr std::string_view changeable_settings[] = {"model",  // a preset; the model's class and settings are compared
                                                    "dropout",
                                                    "text_field",  // the fingerprint is of the texts in it
                                                    "flip",
                                                    "crop_padding",
                                                    "out",
                                                    "lr_scales",
                                                    "weight_decay_rules",
                                                    "steps",
                                                    "batch_size",
                                                    "batch_tokens",
                                                    "gradient_accumulation_steps",
                                                    "gradient_parts",
                                                    "learning_rate",
                                                    "min_learning_rate",
                                                    "warmup_steps",
                                                    "warmup_form",
                                                    "schedule",
                                                    "optimizer",  // its settings; its name is compared
                                                    "grad_clip",
                                                    "threads",
                                                    "device",
                                                    "precision",
                                                    "products",
                                                    "cuda_graph",
                                                    "evaluate_every",
                                                    "checkpoint_every",
                                                    "metrics",
                                                    "metrics_every",
                                                    "peak_tflops",
                                                    "keep_checkpoints",
                                                    "keep_best",
                                                    "save_optimizer",
                                                    "resume",
                                                    "resume_from_previous",
                                                    "allow_new_text",
                                                    "nan_guard",
                                                    "signal_propagation",
                                                    "profile"};
constexpr std::string_view changeable_group = "losses.";  // weights; logged losses do not include them

bool is_in(const auto& names, std::string_view key) {
  return std::any_of(std::begin(names), std::end(names), [&](std::string_view name) { return name == key; });
}

bool is_path_of_data(const std::string& key) { return is_in(paths_of_data, key); }
bool describes_data(const std::string& key) { return splits_data(key) || is_path_of_data(key); }

void check_same(const std::string& run, const std::string& key, const std::string& its, const std::string& ours) {
  check_usage(its == ours || !is_replay(run), "replay: the state in ", run, " is of a run with ", key, "=", its,
              ", not ", ours, "; leave ", key, " out");
  check_usage(its == ours, "train: the run in ", run, " has ", key, "=", its, ", not ", ours, "; ",
              describes_data(key) ? "add --allow_new_text=yes to continue with other data, or " : "",
              "resume it with its own settings: ", resume_command(run));
}

// Earlier versions recorded the default where prepared data came with their own tokenizer.
bool resolves_default_tokenizer(const std::string& before, const std::string& now, const std::string& tokenizer) {
  return before == "character" && now != before && restore_tokenizer(tokenizer)->name() == now;
}

// Calls take(key, before, now) for each setting that differs and that a resumed run may not change,
// or only with allow_new_text.
void each_difference(const TrainSettings& now, const TrainSettings& then, const std::string& tokenizer,
                     const auto& take) {
  const TrainSettings its = resolved(then);
  for (const auto& [key, value] : list_settings(resolved(now))) {
    if (!defines_loss(key) && (key.starts_with(changeable_group) || is_in(changeable_settings, key))) continue;
    const std::string before = setting_of(its, key);
    if (key == "init_from" && value.empty()) continue;  // the starting point may be left out
    if (key == "tokenizer" && resolves_default_tokenizer(before, value, tokenizer)) continue;
    // Data may have moved. If a path is added or removed, data are used differently.
    if (is_path_of_data(key) ? before.empty() != value.empty() : before != value) take(key, before, value);
  }
}

void check_same_settings(const TrainSettings& now, const TrainSettings& then, const std::string& tokenizer) {
  check_same_kind(now.out, now.model, now.task, then);
  if (then.optimizer.name != now.optimizer.name)  // the optimizer state would differ; its settings may change
    check_same(now.out, "optimizer", print(then.optimizer), print(now.optimizer));
  each_difference(now, then, tokenizer, [&](const std::string& key, const std::string& its, const std::string& ours) {
    if (!now.allow_new_text || !describes_data(key)) check_same(now.out, key, its, ours);
  });
}

// Returns an error message that states how the data differ from the run's; empty if they do not. A
// run resumed with other data recorded those; an older checkpoint recorded none.
std::string difference_of_data(const TrainSettings& now, const TrainSettings& then, const CheckpointState& before,
                               const Task& task) {
  const auto difference = [&](const Fingerprint& found, const Fingerprint& its, const std::string& ours,
                              const std::string& key) {
    if (its.sha256.empty() || its == found) return std::string();
    return text("train: ", key, "=", ours, " (", found.bytes, " bytes, SHA-256 ", found.sha256.substr(0, 12),
                "...) differs from the ", task.kind(), " of the run in ", now.out, ", ", key, "=",
                setting_of(then, key), " (", its.bytes, " bytes, SHA-256 ", its.sha256.substr(0, 12),
                "...); resume it with that, or add --allow_new_text=yes to continue with this");
  };
  std::string differs = difference(task.fingerprint(), before.text, task.data(), "data");
  const std::map<std::string, Fingerprint> extra_inputs = task.extra_inputs();
  for (auto each = before.extra_inputs.begin(); differs.empty() && each != before.extra_inputs.end(); ++each) {
    const auto& [key, its] = *each;
    const auto found = extra_inputs.find(key);
    if (key.ends_with(division_mark)) {
      const std::string setting = key.substr(0, key.size() - division_mark.size());
      if (found == extra_inputs.end() || found->second != its)
        differs = text("train: --", setting, "=", setting_of(now, setting),
                       " is divided into other documents than the ", its.bytes, " that the run in ", now.out,
                       " read; resume it with those, or add --allow_new_text=yes to continue with these");
    } else if (found != extra_inputs.end() && key != "tokenizer") {  // the checkpoint holds that, in its version's form
      differs = difference(found->second, its, setting_of(now, key), key);
    }
  }
  return differs;
}

// The hash of a plug-in's file at the time of the checkpoint is stored with those of the data.
constexpr std::string_view plugin_mark_in_state = "plug-in ";

}  // namespace

std::map<std::string, Fingerprint> with_loaded_plugins(std::map<std::string, Fingerprint> extra_inputs) {
  for (const auto& [file, hash] : loaded_plugins()) extra_inputs[std::string(plugin_mark_in_state) + file] = {0, hash};
  return extra_inputs;
}

std::vector<std::string> changed_plugins(const CheckpointState& before) {
  std::vector<std::string> changed;
  for (const auto& [file, hash] : loaded_plugins()) {
    const auto its = before.extra_inputs.find(std::string(plugin_mark_in_state) + file);
    if (its != before.extra_inputs.end() && its->second.sha256 != hash) changed.push_back(file);
  }
  return changed;
}

bool is_run_path(std::string_view value) {
  return value != "yes" && value != "no" && value != "true" && value != "false" && value != "True" && value != "False";
}

std::string resume_command(const std::string& run, const std::vector<std::string>& more) {
  std::string line = "orrery train";
  for (const std::string& plugin : plugins_of_settings_file(run + "/settings.toml")) line += " " + plugin;
  line += " " + shell_quoted("--resume=" + (is_run_path(run) ? run : "./" + run));
  for (const std::string& word : more) line += " " + shell_quoted(word);
  return line;
}

std::vector<std::string> command_to_use(const std::string& task, const std::string& run) {
  if (task == "translation") return {"translate", run, "--input=FILE"};
  if (task == "image_classification") return {"classify", run, "IMAGE"};
  if (task == "language_modeling" || task == "stream_modeling") return {"generate", run};
  return {};
}

void check_same_kind(const std::string& run, const std::string& model, const std::string& task,
                     const TrainSettings& settings) {
  check_same(run, "model", named_model(settings.model).model_class.name, named_model(model).model_class.name);
  check_same(run, "task", settings.task, task);
}

std::vector<TrainingData> training_data(const CheckpointState& state) {
  std::vector<TrainingData> all = state.earlier;
  if (state.text.sha256.empty()) return all;
  TrainingData data{.fingerprint = state.text, .parts = state.parts};
  const TrainSettings its = make_settings(state.settings);
  const std::string fraction = setting_of(its, "validation_fraction");
  if (!fraction.empty() && setting_of(its, "validation_data").empty())
    data.held_out = parse_number("validation_fraction", fraction);
  std::erase(all, data);
  all.insert(all.begin(), std::move(data));
  return all;
}

Fingerprint held_out_data(const CheckpointState& state) {
  if (setting_of(make_settings(state.settings), "validation_data").empty()) return state.text;
  const auto found = state.extra_inputs.find("validation_data");
  return found == state.extra_inputs.end() ? Fingerprint() : found->second;
}

std::vector<TrainingData> as_of_init_from(std::vector<TrainingData> all) {
  std::vector<TrainingData> distinct;
  for (TrainingData& data : all) {
    data.of_init_from = true;
    if (std::find(distinct.begin(), distinct.end(), data) == distinct.end()) distinct.push_back(std::move(data));
  }
  return distinct;
}

bool has_new_data(const TrainSettings& now, const CheckpointState& before, const Task& task) {
  if (!now.allow_new_text) return false;
  const TrainSettings then = make_settings(before.settings);
  bool differs = !difference_of_data(now, then, before, task).empty();
  each_difference(now, then, before.tokenizer,
                  [&](const std::string& key, const auto&...) { differs |= describes_data(key); });
  return differs;
}

void check_same_run(const TrainSettings& now, const CheckpointState& before, const Task& task) {
  const TrainSettings then = make_settings(before.settings);
  check_same_settings(now, then, before.tokenizer);
  check_usage(before.step <= now.steps, "train: steps=", now.steps, ", but the run in ", now.out, " has done ",
              before.step, "; give more --steps");
  if (!now.allow_new_text) {
    const std::string difference = difference_of_data(now, then, before, task);
    check(difference.empty(), difference);
  }
  const std::vector<std::string> changed = changed_plugins(before);
  check(changed.empty(), "train: ", join(changed),
        changed.size() == 1 ? " is not the plug-in" : " are not the plug-ins", " that the run in ", now.out,
        " used; load that one with --plugin=FILE, or start a new run with --init_from=", now.out);
}

}  // namespace orrery::models
