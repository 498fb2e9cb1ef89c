#include "examples/orrery/commands/train_settings.h"

#include <algorithm>
#include <iterator>

#include "engine/system/files.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/terminal/arguments.h"
#include "models/data/pair_format.h"
#include "models/data/text_format.h"
#include "models/model.h"
#include "models/settings/settings_file.h"
#include "models/study/run_contents.h"
#include "models/tasks/text_task.h"
#include "models/training/resume.h"
#include "models/training/run_folder.h"

namespace orrery::program {
namespace {

// Returns the key and other programs' names for it.
std::vector<std::string> names_of(const std::string& key) {
  std::vector<std::string> names = {key};
  for (const ForeignKey& foreign : models::foreign_keys())
    if (foreign.target == key) names.emplace_back(foreign.key);
  return names;
}

std::string value_of(const Assignments& assignments, const std::string& key, std::string otherwise) {
  const std::vector<std::string> names = names_of(key);
  for (const auto& [given, value] : assignments)
    if (std::find(names.begin(), names.end(), given) != names.end()) otherwise = value;
  return otherwise;
}

// Returns the last value of a key in files of settings, then on the command line; else `otherwise`.
std::string last_value(const ParsedArguments& parsed, const std::string& key, std::string otherwise) {
  for (const auto& [given, value] : parsed.assignments)
    for (const std::string& name : given == "config" ? names_of(key) : std::vector<std::string>())
      otherwise = models::value_in_settings_file(value, name).value_or(otherwise);
  return value_of(parsed.assignments, key, otherwise);
}

bool is_weight_setting(std::string_view key) {
  return std::any_of(std::begin(models::settings_of_weights), std::end(models::settings_of_weights),
                     [&](std::string_view each) { return each == key; });
}

// Replaces --resume=RUN by --resume=yes --out=RUN.
void apply_resume_run(const std::string& command, Assignments& given) {
  const std::string value = value_of(given, "resume", "no");
  if (!models::is_run_path(value)) return;
  const std::string run = without_last_slashes(value);
  check(folder_exists(run), command, ": --resume=", value, ": there is no such folder; give yes, no or a run's folder");
  models::check_is_run(command, run);
  const std::string out = value_of(given, "out", run);
  check_usage(out == run || out == value, command, ": --resume=", value,
              " resumes the run in that folder, but --out=", out,
              " names another; leave --out out, or start a new run with --init_from=", value);
  for (auto& [key, each] : given)
    if (key == "resume") each = "yes";
  given.emplace_back("out", run);
}

ParsedArguments parse(const std::string& command, const Arguments& arguments, models::TrainSettings known) {
  ParsedArguments parsed = parse_arguments(command, arguments, settings_of(known));
  apply_resume_run(command, parsed.assignments);
  return parsed;
}

// Returns the settings of the resumed run.
Assignments resumed_settings(const ParsedArguments& parsed) {
  const std::string run = last_value(parsed, "out", models::TrainSettings().out);
  if (!folder_exists(run) || !models::is_run(run)) return {};  // the trainer reports what is missing
  models::TrainSettings its = models::settings_of_run(run);
  its.out = run;
  const std::string wanted = last_value(parsed, "model", its.model);
  models::check_same_kind(run, wanted, last_value(parsed, "task", its.task), its);
  const std::vector<Setting> model = its.model_settings.members();
  const bool same = models::named_model(wanted).name == its.model;
  Assignments taken;  // another preset has its own values, which the trainer compares
  for (const auto& [key, value] : list_settings(its))
    if (same || !(key == "model" || find_setting(model, key))) taken.emplace_back(key, value);
  return taken;
}

// Returns whether the data, if they are pairs, are a file of columns. A folder of images has no format of pairs.
bool has_columns(const ParsedArguments& parsed) {
  const models::PairFiles files{.source = last_value(parsed, "data", ""),
                                .target = last_value(parsed, "translations", ""),
                                .source_field = last_value(parsed, "source_field", models::PairFiles().source_field)};
  const models::PairFormat* const format = models::find_pair_format(files);
  return format && format->name == "columns";
}

// Returns the settings that a run with --init_from inherits: the model and its settings, the task
// and those of its settings that the weights depend on, and the dtype.
Assignments inherited_settings(const ParsedArguments& parsed) {
  const std::string from = last_value(parsed, "init_from", "");
  if (from.empty()) return {};
  const auto refuse = [&](const char* what_to_do) {
    check_usage(folder_exists(from), "train: --init_from=", from, ": there is no such folder; ", what_to_do);
  };
  if (from == "scratch") refuse("to start from scratch, as in nanoGPT, leave it out");
  if (from == "resume") refuse("to resume, as in nanoGPT, give --resume=RUN");
  if (from.starts_with("gpt2")) refuse("run `orrery import FOLDER --out=RUN` first, then give --init_from=RUN");
  const models::TrainSettings known = models::make_settings(models::read_state(models::checkpoint_at(from)).settings);
  const Assignments its = list_settings(known);  // by today's names
  const std::string& its_class = models::named_model(known.model).model_class.name;
  const std::string wanted = last_value(parsed, "model", known.model);
  const std::string& wanted_class = models::named_model(wanted).model_class.name;
  check_usage(wanted_class == its_class, "train: --init_from=", from, " has a model of class ", its_class,
              ", but --model=", wanted, " is of class ", wanted_class,
              "; leave --model out, or start without --init_from");
  const models::TrainSettings ours(known.model, last_value(parsed, "task", known.task));
  const std::vector<Setting> model = known.model_settings.members(), task = ours.task_settings.members();
  const bool columns = has_columns(parsed);
  Assignments taken = {{"task", known.task}};
  for (const auto& [key, value] : its) {
    if (!columns && key.ends_with("_column")) continue;
    const bool named = key == "model", of_task = is_weight_setting(key) && find_setting(task, key);
    if (!named && !of_task && key != "dtype" && !find_setting(model, key)) continue;
    const std::string requested = last_value(parsed, key, value);
    const bool same = named ? models::named_model(requested).name == known.model : requested == value;
    check_usage(!(named || (of_task && key == "tokenizer")) || same, "train: ", from, " has ", key, "=", value,
                ", which its weights require, but ", key, "=", requested, " is given; leave ", key,
                " or init_from out");
    taken.emplace_back(key, value);
  }
  return taken;
}

// Returns the settings that apply before all given keys.
Assignments base_settings(const ParsedArguments& parsed) {
  const bool resumes = parse_yes_or_no("resume", last_value(parsed, "resume", "no"));
  return resumes ? resumed_settings(parsed) : inherited_settings(parsed);
}

// Returns the defaults of the named model and task, which define the keys.
models::TrainSettings settings_of_model(const ParsedArguments& parsed) {
  for (const auto& [key, value] : parsed.assignments)
    check_usage(key != "config" || !value.empty(),
                "train: --config needs a file, as in --config=examples/configs/quickstart.toml");
  const Assignments base = base_settings(parsed);
  return models::TrainSettings(last_value(parsed, "model", value_of(base, "model", models::TrainSettings().model)),
                               last_value(parsed, "task", value_of(base, "task", "")));
}

// Throws if the task's default tokenizer was requested explicitly, but prepared data have another.
void check_tokenizer_of_data(const ParsedArguments& parsed, const models::TrainSettings& settings) {
  const std::string given = value_of(parsed.assignments, "tokenizer", ""), data = models::setting_of(settings, "data");
  if (given != models::TextSettings().tokenizer || data.empty()) return;
  const auto own = models::tokenizer_of_tokens(data);
  if (own && own->name() != given) models::refuse_tokenizer(data, own.get(), given);
}

}  // namespace

models::TrainSettings known_train_settings(const std::string& command, const Arguments& arguments) {
  return settings_of_model(parse(command, arguments, models::TrainSettings()));
}

models::TrainSettings read_train_settings(const std::string& command, const Arguments& arguments, bool on_ranks) {
  models::TrainSettings known = known_train_settings(command, arguments);
  const ParsedArguments parsed = parse(command, arguments, known);
  check_usage(parsed.positional.empty(), command, ": '", parsed.positional.empty() ? "" : parsed.positional[0],
              "' is not of the form --key=value; orrery train --help lists the settings");
  Assignments assignments = base_settings(parsed);
  for (const auto& [key, value] : parsed.assignments)
    if (key == "config")
      for (auto& assignment : models::read_settings_file(value, settings_of(known), models::foreign_keys()))
        assignments.push_back(std::move(assignment));
  for (const auto& assignment : parsed.assignments)
    if (assignment.first != "config") assignments.push_back(assignment);
  models::TrainSettings settings = as_usage([&] { return models::make_settings(assignments); });
  constexpr int64_t parts_of_ranks = 8;
  const auto gives_parts = [](const auto& assignment) { return assignment.first == "gradient_parts"; };
  if (on_ranks && std::none_of(assignments.begin(), assignments.end(), gives_parts))
    settings.gradient_parts = std::min(parts_of_ranks, settings.gradient_accumulation_steps);
  if (!settings.resume)  // a resumed run's own settings may need a plug-in, which a later error names
    as_usage([&] { models::named_model(settings.model).model_class.check(settings.model_settings); });
  models::check_utf8_settings(command, list_settings(settings));
  check_tokenizer_of_data(parsed, settings);
  return settings;
}

}  // namespace orrery::program
