// orrery evaluate: evaluates a trained model on held-out data.
#include <cmath>
#include <iostream>
#include <optional>

#include "engine/system/files.h"
#include "engine/system/parallel.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/commands/few_shot.h"
#include "examples/orrery/commands/edits_argument.h"
#include "examples/orrery/commands/load_run.h"
#include "examples/orrery/commands/text_bounds.h"
#include "examples/orrery/terminal/arguments.h"
#include "examples/orrery/terminal/json_output.h"
#include "examples/orrery/terminal/messages.h"
#include "examples/orrery/terminal/progress.h"
#include "examples/orrery/terminal/table.h"
#include "models/data/text_format.h"
#include "models/image_model.h"
#include "models/model.h"
#include "models/tasks/base/task.h"
#include "models/training/memory_plan.h"
#include "models/translation_model.h"

namespace orrery::program {
namespace {

struct EvaluateSettings {
  std::string checkpoint, device = "cpu", among, edits;
  int64_t threads = 0;
  bool bleu = true, json = false;
  TextBegin begin;
  FewShotOptions few_shot;
  AnySettings* task = nullptr;  // the checkpoint's task, once loaded

  template <class V>
  void visit(V& v) {
    v("checkpoint|out_dir", checkpoint, "another way to give RUN: the folder of a run or of one checkpoint");
    v("threads", threads, "cores to use; 0: OMP_NUM_THREADS, else all", between(0, 1024));
    v("device", device, "cpu or cuda", one_of({"cpu", "cuda"}));
    v("bleu", bleu, "translation models: translate the evaluated data and print BLEU, which takes longest");
    v("among", among,
      "models of images: file with a class per line; evaluate only their images, and only they compete");
    v("edits", edits, edits_help);
    v("json", json, json_help);
    begin.visit(v);
    few_shot.visit(v);
    if (task) task->visit(v);
  }
};

// Returns the last value that the arguments give a key of s.
std::optional<std::string> argument_value(EvaluateSettings& s, const Arguments& arguments, const std::string& wanted) {
  std::optional<std::string> found;
  const std::vector<Setting> settings = settings_of(s);
  for (const auto& [key, value] : parse_arguments("evaluate", arguments, settings).assignments) {
    const Setting* const setting = find_setting(settings, key);
    if ((setting ? setting->key : key) == wanted) found = value;
  }
  return found;
}

// Parses the checkpoint alone, because it defines the other keys.
std::string checkpoint_in(const Arguments& arguments) {
  EvaluateSettings first;
  std::vector<std::string> words = parse_arguments("evaluate", arguments, settings_of(first)).positional;
  return take_run(argument_value(first, arguments, "checkpoint").value_or(""), words);
}

// The run's data may have moved since.
void check_data_exists(EvaluateSettings& s, const Arguments& arguments) {
  for (const char* key : models::paths_of_data) {
    if (!find_setting(s.task->members(), key)) continue;
    const auto& path = models::setting_of<std::string>(*s.task, key);
    if (path.empty() || file_exists(path)) continue;
    check(!argument_value(s, arguments, key), "evaluate: cannot read ", path, ", given with --", key,
          ": there is no such file or folder; give the path of the data");
    fail("evaluate: cannot read ", path, ", the run's --", key, "; give its present path with --", key, "=PATH",
         s.few_shot.few_shot > 0 ? "" : ", or evaluate other data with --validation_data=PATH");
  }
}

// Applies --begin to text data; rejects it for tokenized data, whose begin tokens are fixed.
void apply_begin(const EvaluateSettings& s, LoadedRun& trained) {
  std::string path;
  for (const char* const key : {"data", "validation_data"})  // the last one is evaluated
    if (find_setting(s.task->members(), key) && !models::setting_of<std::string>(*s.task, key).empty())
      path = models::setting_of<std::string>(*s.task, key);
  if (path.empty() || !models::has_tokens(path)) return apply_bounds("evaluate", s.begin, trained);
  check(s.begin.begin == "family", "evaluate: --begin=", s.begin.begin, " has no effect on ", path,
        ", which is already tokenized; leave --begin out, or give the text itself");
}

// The checkpoint needs its own tokenizer; another is rejected instead of silently accepted.
std::vector<Setting> accepted_settings(EvaluateSettings& s) {
  std::vector<Setting> settings = settings_of(s);
  std::erase_if(settings, [](const Setting& setting) { return setting.key == "tokenizer"; });
  return settings;
}
void refuse_tokenizer(EvaluateSettings& s, const Arguments& arguments) {
  const auto tokenizer = argument_value(s, arguments, "tokenizer");
  check_usage(!tokenizer,
              "evaluate: the tokenizer is always the one of the checkpoint; leave --tokenizer=", tokenizer.value_or(""),
              " out");
}

// Clears the training data if validation data are given, because the files may be missing. An
// explicit --data is kept: it requests the loss on it too.
void drop_training_data(EvaluateSettings& s, const Arguments& arguments) {
  const std::vector<Setting> members = s.task->members();
  if (!find_setting(members, "validation_data") ||
      models::setting_of<std::string>(*s.task, "validation_data").empty() || argument_value(s, arguments, "data"))
    return;
  models::setting_of<std::string>(*s.task, "data").clear();
}

// Returns e^loss, which only a loss per token has.
std::optional<double> perplexity(const models::Task& task, const models::Validation& found) {
  return task.unit() == "tokens" ? std::optional(std::exp(found.loss)) : std::nullopt;
}

void print_validation(const models::Task& task, const models::Validation& found, const models::Edits& edits) {
  if (const std::string changes = describe(edits); !changes.empty()) std::cout << changes << "\n";
  if (found.targets > 0) std::cout << pluralize(found.targets, "target") << " in ";
  std::cout << with_commas(task.validation_units()) << " " << task.unit() << "\nloss " << fixed(found.loss, 4)
            << " nats";
  if (const auto value = perplexity(task, found)) std::cout << ", perplexity " << fixed(*value, 3);
  std::cout << "\n";
  for (const auto& [name, value] : found.metrics) std::cout << humanize(name) << " " << fixed(value, 4) << "\n";
  std::cout << std::flush;
}

Json json_of(const std::string& checkpoint, const std::string& among, const models::Task& task,
             const models::Validation& found, const models::Edits& edits) {
  Json all = {{"checkpoint", checkpoint}, {"unit", task.unit()}, {"units", task.validation_units()}};
  all["targets"] = found.targets > 0 ? Json(found.targets) : Json();  // null: every unit is a target
  all["loss"] = json_number(found.loss);
  if (const auto value = perplexity(task, found)) all["perplexity"] = json_number(*value);
  all["metrics"] = json_numbers(found.metrics);
  all["among"] = among.empty() ? Json() : Json(among);
  all["edits"] = all["mean_over"] = Json();  // null: none
  add_edits(all, edits);
  return all;
}

// Rejects settings of the few-shot evaluation without it, and those of the other one with it.
void check_few_shot(EvaluateSettings& s, const Arguments& arguments) {
  if (s.few_shot.few_shot > 0) {
    check_usage(s.among.empty(), "evaluate: --among=", s.among,
                " has no effect on a few-shot evaluation, whose classes are those of its data; leave one of them out");
    check_usage(!argument_value(s, arguments, "text_field"), "evaluate: --text_field has no effect on a few-shot "
                "evaluation; give the column of the texts with --text_column");
    return check_few_shot_output(s.few_shot);
  }
  for (const char* const key : {"features", "text_column", "label_column", "seeds", "out"})
    check_usage(!argument_value(s, arguments, key), "evaluate: --", key,
                " is for a few-shot evaluation, which is not requested; add --few_shot=10, or leave --", key, " out");
}

int evaluate_few_shot(EvaluateSettings& s, const Arguments& arguments, const std::string& run,
                      const LoadedRun& trained, models::Edits& edits) {
  JsonOutput json(s.json);
  // Data that the user gives have their own test examples, not those of the run.
  if (argument_value(s, arguments, "data") && !argument_value(s, arguments, "validation_data") &&
      find_setting(s.task->members(), "validation_data"))
    models::setting_of<std::string>(*s.task, "validation_data").clear();
  check_data_exists(s, arguments);
  const models::HostMemoryLimit limit;  // an error instead of the system's kill
  std::optional<Progress> progress(std::in_place, "evaluating");
  const models::FewShot found = evaluate_few_shot(
      trained, *s.task, s.few_shot, [&](const std::string& read) { edits.end_at(read); },
      [&](double fraction) { progress->fraction("features", fraction); });
  progress.reset();
  edits.check_applied();
  warn(found.notes);
  if (!s.few_shot.out.empty()) write_few_shot(s.few_shot.out, found);
  if (json) {
    Json all = {{"checkpoint", run}};
    all["few_shot"] = few_shot_json(found);
    add_edits(all, edits);
    json.print(all);
  } else {
    if (const std::string changes = describe(edits); !changes.empty()) std::cout << changes << "\n";
    print_few_shot(found);
  }
  return 0;
}

}  // namespace

CommandHelp evaluate_help(const Arguments& given) {
  EvaluateSettings settings;
  const std::string checkpoint = checkpoint_in(given);
  AnySettings task = checkpoint.empty() ? models::TrainSettings().task_settings
                                        : load_run("evaluate", checkpoint).settings.task_settings;
  settings.task = &task;
  return {
      "RUN is the folder of a run, whose last checkpoint is used, or of a checkpoint.  Settings of its task have the "
      "values of the run as defaults.",
      describe(accepted_settings(settings)),
      "A warning counts the training data in the validation: those of the run, also before --allow_new_text, and of "
      "runs in init_from.  It finds the same data at any path, token files and the text they were made of, and single "
      "files of a folder of up to 1,000 texts.  It does not find some of the pairs of a file or of the images of a "
      "folder, part of a text file, or data that checkpoints of older versions did not record.\n"
      "--few_shot=N --data=SET evaluates the features instead: linear probes on N labelled images, or texts (.csv, "
      ".tsv, .jsonl), of each class of SET, whose classes may be new to the model.",
      "orrery evaluate runs/latest --validation_data=test"};
}

int evaluate(const Arguments& arguments) {
  EvaluateSettings s;
  LoadedRun trained = load_run("evaluate", checkpoint_in(arguments));
  AnySettings task_settings = trained.settings.task_settings, model_settings = trained.settings.model_settings;
  s.task = &task_settings;
  refuse_tokenizer(s, arguments);
  std::vector<std::string> words = read_arguments("evaluate", arguments, accepted_settings(s));
  const std::string run = take_run(s.checkpoint, words);
  check_usage(words.empty(), "evaluate: '", words.empty() ? "" : words[0],
              "' is not of the form --key=value; did you mean --validation_data?");
  check_few_shot(s, arguments);
  if (s.threads > 0) set_thread_count(static_cast<int>(s.threads));
  check_usage(s.among.empty() || dynamic_cast<const models::ImageModel*>(trained.model.get()),
              "evaluate: --among names classes of images, but this model is not one of images; leave it out");
  const Device device = parse_device(s.device);
  check_available(device);
  if (s.few_shot.few_shot > 0) {
    apply_bounds("evaluate", s.begin, trained);
    nn::move(*trained.model, device);
    const auto edits = begin_edits("evaluate", s.edits, *trained.model, models::Passes::whole);
    return evaluate_few_shot(s, arguments, run, trained, *edits);
  }
  drop_training_data(s, arguments);
  check_data_exists(s, arguments);
  apply_begin(s, trained);
  JsonOutput json(s.json);
  std::optional<Progress> progress(std::in_place, "evaluating");
  models::TaskOptions options = evaluation_options(trained);
  options.trained_on = trained.trained_on, options.bleu = s.bleu, options.among = s.among, options.device = device;
  options.progress = [&](const std::string& done, double fraction) { progress->fraction(done, fraction); };
  const auto task = models::tasks().at(trained.settings.task).make(task_settings, model_settings, options);
  warn(task->warnings());
  if (!argument_value(s, arguments, "data") && !argument_value(s, arguments, "validation_data"))
    warn_about_data(trained, *task);
  nn::move(*trained.model, device);
  const models::HostMemoryLimit limit;  // an error instead of the system's kill
  const models::Passes passes = passes_of_validation(*trained.model);
  const auto edits = begin_edits("evaluate", s.edits, *trained.model,
                                 s.bleu || passes == models::Passes::stream ? passes : models::Passes::whole);
  const auto found = task->validate(*trained.model, {});
  edits->check_applied();
  progress.reset();
  json ? json.print(json_of(run, s.among, *task, *found, *edits)) : print_validation(*task, *found, *edits);
  return 0;
}

}  // namespace orrery::program
