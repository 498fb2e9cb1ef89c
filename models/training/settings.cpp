#include "models/training/settings.h"

#include "engine/types/usage_error.h"
#include "models/architectures/masks.h"
#include "models/former_names.h"
#include "models/model.h"
#include "models/tasks/base/task.h"
#include "nn/base/spec_family.h"

namespace orrery::models {

std::span<const ForeignKey> foreign_keys() {
  constexpr std::string_view wandb = "leave it out; `orrery metrics --format=tensorboard` exports the log";
  static const ForeignKey keys[] = {
      {"n_layer", "layers"},
      {"n_head", "heads"},
      {"n_embd", "width"},
      {"num_heads", "heads"},
      {"d_model", "width"},
      {"lr", "learning_rate"},
      {"block_size", "context"},
      {"vocab_size", "vocabulary"},
      {"max_iters", "steps"},
      {"min_lr", "min_learning_rate"},
      {"warmup_iters", "warmup_steps"},
      {"weight_decay", "optimizer.weight_decay"},
      {"beta1", "optimizer.beta1"},
      {"beta2", "optimizer.beta2"},
      {"eval_interval", "evaluate_every"},
      {"out_dir", "out"},
      {"decay_lr", "use schedule=constant for a constant learning rate"},
      {"dataset", "did you mean 'data', the path of a text file?"},
      {"eval_iters", "leave it out; validation_tokens limits a validation"},
      {"log_interval", "leave it out; every step is reported"},
      {"eval_only", "leave it out; `orrery evaluate RUN` evaluates without training"},
      {"always_save_checkpoint", "leave it out; checkpoint_every and keep_best determine when checkpoints are written"},
      {"wandb_log", wandb},
      {"wandb_project", wandb},
      {"wandb_run_name", wandb},
      {"backend", "leave it out; training uses one process, with --threads threads"},
      {"real_data", "did you mean 'data', the path of a text file?"},
      {"compile", "leave it out; models are not compiled"},
      {"edits",
       "edits change a trained model; use orrery inspect, generate or evaluate with --edits, or give a variant of a "
       "claim edits"},
  };
  return keys;
}

TrainSettings::TrainSettings(const std::string& model_name, const std::string& task_name)
    : model(named_model(model_name).name),
      task(task_name.empty() ? named_model(model_name).model_class.task : task_name),
      model_settings(named_model(model_name).settings),
      task_settings(tasks().at(task).settings) {}

namespace {

// Returns the members of a registry whose settings include `key`.
template <class Class>
std::vector<std::string> owners_of(const Registry<Class>& all, const std::string& key) {
  std::vector<std::string> owners;
  for (const std::string& name : all.names())
    if (find_setting(all.at(name).settings.members(), key)) owners.push_back(name);
  return owners;
}

// Throws if a setting that this run lacks is one of other models or tasks.
void check_belongs(const std::string& task, const std::string& model, std::span<const Setting> members,
                   const std::string& key) {
  if (find_setting(members, key) || key.find('.') != std::string::npos) return;
  const auto check_owners = [&](const char* family, const std::string& own, const std::vector<std::string>& owners) {
    check_usage(owners.empty(), "train: ", family, "=", own, " has no setting '", key, "'; it is a setting of ", family,
                "=", join(owners));
  };
  check_owners("task", task, owners_of(tasks(), key));
  check_owners("model", model, owners_of(model_classes(), key));
}

}  // namespace

TrainSettings make_settings(const Assignments& assignments) {
  std::string model = TrainSettings().model, task;
  for (const auto& [key, value] : assignments) {
    if (key == "model") model = value;
    if (key == "task") task = value;
  }
  TrainSettings settings(model, task);
  const std::vector<Setting> members = settings_of(settings);
  const auto rename = [&] {
    nn::change_specs(members, [](const nn::SpecFamily& family, const Spec& spec) { return family.renamed(spec); });
  };
  for (const auto& [key, value] : assignments) {
    if (key.find('.') != std::string::npos) rename();  // gives items of specs their present names
    as_content([&, &key = key, &value = value] {  // clang 15 captures no structured bindings
      check_belongs(settings.task, model, members, key);
      set_setting(std::span<const Setting>(members), "train", key, value, foreign_keys());
    });
  }
  rename();
  settings.model = named_model(model).name, settings.metrics = with_current_metrics(settings.metrics);
  if (settings.task.empty()) settings.task = named_model(model).model_class.task;
  const int64_t decay = settings.lr_decay_iters, steps = settings.steps;
  check(decay == 0 || decay == steps, "train: lr_decay_iters (", decay, ") must equal steps (", steps,
        "), because a schedule ends with the run; leave lr_decay_iters out, or use steps=", decay);
  return settings;
}

TrainSettings from_the_beginning(TrainSettings settings) {
  settings.resume = settings.resume_from_previous = settings.allow_new_text = false;
  return settings;
}

std::string setting_of(const TrainSettings& settings, const std::string& key) {
  for (const auto& [each, value] : list_settings(settings))
    if (each == key) return value;
  return "";
}

Dtype parse_dtype(const std::string& name) {
  return name == "f64" ? Dtype::f64 : name == "bf16" ? Dtype::bf16 : Dtype::f32;
}

std::unique_ptr<nn::Module> make_model(const TrainSettings& settings) {
  return named_model(settings.model).model_class.make(settings.model_settings);
}

TrainSettings resolved(TrainSettings settings) {
  nn::change_specs(settings_of(settings),
                   [](const nn::SpecFamily& family, const Spec& spec) { return family.resolved(spec); });
  resolve_masks(settings.model_settings);
  return settings;
}

}  // namespace orrery::models
