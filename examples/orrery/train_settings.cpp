#include "examples/orrery/train_settings.h"

#include "examples/orrery/arguments.h"
#include "models/model.h"
#include "models/settings_file.h"
#include "models/training/run_folder.h"

namespace orrery::program {
namespace {

using Assignments = std::vector<std::pair<std::string, std::string>>;

std::string value_of(const Assignments& assignments, const std::string& key, std::string otherwise) {
  for (const auto& [given, value] : assignments)
    if (given == key) otherwise = value;
  return otherwise;
}

// The last value of a key in a file of settings or on the command line, which counts later; `otherwise` if none has it.
std::string last_value(const ParsedArguments& parsed, const std::string& key, std::string otherwise) {
  for (const auto& [given, value] : parsed.assignments)
    if (given == "config") otherwise = models::value_in_settings_file(value, key).value_or(otherwise);
  return value_of(parsed.assignments, key, otherwise);
}

ParsedArguments parse(const std::string& command, const Arguments& arguments, models::TrainSettings known) {
  return parse_arguments(command, arguments, settings_of(known));
}

// What a run that begins with another's weights takes over: its model, that model's settings, its tokenizer and its
// dtype.  Once it is resumed, they are its own: its data may have changed them.
Assignments inherited(const ParsedArguments& parsed) {
  std::string from = last_value(parsed, "init_from", "");
  if (from.empty()) return {};
  const std::string out = last_value(parsed, "out", models::TrainSettings().out);
  if (parse_yes_or_no("resume", last_value(parsed, "resume", "no")) && models::holds_checkpoints(out)) from = out;
  const Assignments its = models::read_state(models::checkpoint_at(from)).settings;
  const models::TrainSettings known = models::make_settings(its);
  const std::string& its_class = models::named_model(known.model).of.name;
  const std::string wanted = last_value(parsed, "model", known.model);
  const std::string& class_wanted = models::named_model(wanted).of.name;
  check(class_wanted == its_class, "train: --init_from=", from, " holds a model of the class ", its_class,
        ", and --model=", wanted, " is of the class ", class_wanted,
        "; leave --model out, or begin without --init_from");
  const models::TrainSettings ours(known.model, last_value(parsed, "task", ""));
  const std::vector<Setting> model = known.model_settings.members(), task = ours.task_settings.members();
  Assignments taken;
  for (const auto& [key, value] : its) {
    const bool named = key == "model", tokenizer = key == "tokenizer" && find_setting(task, key);
    if (!named && !tokenizer && key != "dtype" && !find_setting(model, key)) continue;
    const std::string said = last_value(parsed, key, value);
    check(!(named || tokenizer) || said == value, "train: ", from, " has ", key, "=", value,
          ", with which its weights are taken over, and not ", key, "=", said, "; leave ", key, " or init_from out");
    taken.emplace_back(key, value);
  }
  return taken;
}

// The defaults of the model and the task that are named, which decide what keys there are.
models::TrainSettings settings_of_model(const ParsedArguments& parsed) {
  for (const auto& [key, value] : parsed.assignments)
    check(key != "config" || !value.empty(),
          "train: --config needs a file, as in --config=examples/configs/quickstart.toml");
  const std::string otherwise = value_of(inherited(parsed), "model", models::TrainSettings().model);
  return models::TrainSettings(last_value(parsed, "model", otherwise), last_value(parsed, "task", ""));
}

}  // namespace

models::TrainSettings known_train_settings(const std::string& command, const Arguments& arguments) {
  return settings_of_model(parse(command, arguments, models::TrainSettings()));
}

models::TrainSettings read_train_settings(const std::string& command, const Arguments& arguments) {
  models::TrainSettings known = known_train_settings(command, arguments);
  const ParsedArguments parsed = parse(command, arguments, known);
  check(parsed.words.empty(), command, ": '", parsed.words.empty() ? "" : parsed.words[0],
        "' is not of the form --key=value; orrery train --help lists the keys");
  Assignments assignments = inherited(parsed);
  for (const auto& [key, value] : parsed.assignments)
    if (key == "config")
      for (auto& assignment : models::read_settings_file(value, settings_of(known), models::nanogpt_keys()))
        assignments.push_back(std::move(assignment));
  for (const auto& assignment : parsed.assignments)
    if (assignment.first != "config") assignments.push_back(assignment);
  return models::make_settings(assignments);
}

}  // namespace orrery::program
