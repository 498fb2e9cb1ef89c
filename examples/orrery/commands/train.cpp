// orrery train: trains a model on its task.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <optional>
#include <set>

#include "engine/distributed/launcher.h"
#include "engine/system/files.h"
#include "engine/system/host.h"
#include "engine/system/parallel.h"
#include "engine/system/signals.h"
#include "engine/tensor/storage.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/commands/train_plan.h"
#include "examples/orrery/commands/train_ranks.h"
#include "examples/orrery/commands/train_settings.h"
#include "examples/orrery/terminal/arguments.h"
#include "examples/orrery/terminal/help_text.h"
#include "examples/orrery/terminal/json_output.h"
#include "examples/orrery/terminal/messages.h"
#include "examples/orrery/terminal/process_io.h"
#include "examples/orrery/terminal/profile_table.h"
#include "examples/orrery/terminal/progress.h"
#include "examples/orrery/terminal/signal_propagation_table.h"
#include "examples/orrery/terminal/table.h"
#include "models/catalogue/plugins.h"
#include "models/formats/json.h"
#include "models/formats/shell_words.h"
#include "models/training/resume.h"
#include "models/training/run_folder.h"
#include "models/training/step_forecast.h"
#include "models/training/trainer.h"

namespace orrery::program {
namespace {

// Settings of the command itself, which are not stored with the run.
struct TrainCommandSettings {
  bool plan = false, json = false;
  double wait_limit = 600;
  int64_t until = 0;

  template <class V>
  void visit(V& v) {
    v.section("output");
    v("plan", plan, "print the plan of the run (memory, time, data, parameters) and end; writes nothing");
    v("json", json, text(json_help, "; after training: losses, metrics and files"));
    v.section("machine");
    v("wait_limit", wait_limit,
      "with several ranks: seconds without a word from another rank, after which the run ends; longer than a "
      "checkpoint takes",
      between(1, 1e6));
    v("|until", until, "step after which the run stops, as by a signal; 0: the last", between(0, 1e9));  // hidden
  }
};

// Sets the settings of the command and returns the other arguments, which belong to the run.
Arguments take_own(const Arguments& arguments, std::span<const Setting> own) {
  Arguments rest;
  const auto end = std::find(arguments.begin(), arguments.end(), "--");
  for (auto word = arguments.begin(); word != end; ++word) {
    const size_t equals = std::min(word->find('='), word->size());
    const std::string key = word->starts_with("--") ? word->substr(2, equals - 2) : "";
    if (!key.empty() && find_setting(own, key))
      set_setting(own, "train", key, equals < word->size() ? word->substr(equals + 1) : "yes");
    else
      rest.push_back(*word);
  }
  rest.insert(rest.end(), end, arguments.end());
  return rest;
}

// Returns the exit code of a complete run.
int exit_code(const models::Task& task, double loss) {
  const std::optional<double> guessing = task.uniform_loss();
  constexpr double resolution = 5e-5;  // smallest difference that the message resolves
  if (!guessing || loss <= *guessing + resolution) return 0;
  print_error(text("train: the validation loss of ", fixed(loss, 4), " is above that of uniform guessing, ln ",
                   task.choices(), " = ", fixed(*guessing, 4),
                   "; the run was too short, or it diverged: try more --steps, a lower "
                   "--learning_rate or --grad_clip=1"));
  return worse_than_uniform;
}

// Returns model, data, out, steps and the settings that differ from the preset's and the task's.
Assignments chosen_settings(const models::TrainSettings& settings) {
  const std::set<std::string> always = {"model", "data", "out", "steps"};
  const auto all = list_settings(settings), resolved = list_settings(models::resolved(settings)),
             usual = list_settings(models::resolved(models::TrainSettings(settings.model, settings.task)));
  Assignments chosen;
  for (size_t i = 0; i < all.size(); ++i)
    if (always.contains(all[i].first) ? !all[i].second.empty() : resolved[i] != usual[i]) chosen.push_back(all[i]);
  return chosen;
}

void print_settings(const models::TrainSettings& settings) {
  constexpr size_t max_columns = 100;
  const size_t columns = std::min(max_columns, terminal_columns(STDERR_FILENO));
  std::string line = "settings:";
  for (const auto& [key, value] : chosen_settings(settings)) {
    const std::string item = " " + key + "=" + for_terminal(value);
    if (line.size() + item.size() > columns) {
      print_message(line);
      line = "         ";
    }
    line += item;
  }
  print_message(line);
}

std::string validation_text(double loss, const std::vector<std::pair<std::string, double>>& metrics) {
  std::string all = "validation loss " + fixed(loss, 4);
  for (const auto& [name, value] : metrics) all += ", " + humanize(name) + " " + fixed(value, 4);
  return all;
}

std::vector<std::string> files_of(const models::TrainSettings& settings, const std::string& checkpoint) {
  std::vector<std::string> files = {settings.out + "/settings.toml", settings.out + "/metrics.jsonl"};
  if (settings.signal_propagation) files.push_back(models::propagation_file(settings.out));
  if (!checkpoint.empty())
    for (std::string& file : files_in(checkpoint)) files.push_back(std::move(file));
  std::erase_if(files, [](const std::string& file) { return !file_exists(file); });
  return files;
}

// Prints the end of a run, complete or stopped.
void print_result(const models::TrainSettings& settings, const models::TrainingResult& result) {
  if (settings.profile) print_message(profile_table(result.profile));
  std::cout << "files:\n";
  for (const std::string& file : files_of(settings, result.checkpoint)) std::cout << "  " << for_terminal(file) << "\n";
  if (result.stopped)
    print_message(text("stopped after step ", result.steps_done, " of ", settings.steps, "; this command resumes it:\n",
                       models::resume_command(settings.out)));
  else
    std::cout << validation_text(result.validation_loss, result.metrics) << std::endl;
}

// A stopped run has no validation at its end.
Json result_json(const models::TrainSettings& settings, const models::TrainingResult& result, int code) {
  return {{"run", settings.out},
          {"state", result.stopped ? "stopped" : "complete"},
          {"step", result.steps_done},
          {"steps", settings.steps},
          {"validation_loss", result.stopped ? Json() : json_number(result.validation_loss)},
          {"metrics", result.stopped ? Json() : json_numbers(result.metrics)},
          {"seconds", json_number(result.seconds)},
          {"checkpoint", result.checkpoint.empty() ? Json() : Json(result.checkpoint)},
          {"files", files_of(settings, result.checkpoint)},
          {"exit_code", code}};
}

std::string ranks_text(const Ranks& ranks) {
  return ranks.count() == 1 ? "" : pluralize(ranks.count(), "rank") + " of ";
}

// forecast for such cores and such a network: 1 rank: about 31 s a step; 2 ranks: about 16 s a step, 1 s of it exchange
std::string forecast_line(const models::StepReport& report, const Ranks& ranks, const models::TrainSettings& settings) {
  std::string line;
  for (const auto& each : models::forecast_steps({ranks.count(), report.milliseconds / 1e3, report.exchange_seconds},
                                                 settings.gradient_parts, settings.gradient_accumulation_steps))
    line += text(line.empty() ? "forecast for such cores and such a network: " : "; ", pluralize(each.ranks, "rank"),
                 ": about ", significant(each.all, 2), " s a step",
                 each.exchange > 0 ? ", " + significant(each.exchange, 2) + " s of it exchange" : "");
  return line;
}

// Returns the commands that fit a trained model.
std::string next_line(const models::TrainSettings& settings) {
  const std::string run = settings.out.starts_with("-") ? "./" + settings.out : settings.out;
  std::string line = "next: " + models::command_line(models::with_plugins({"report", run}));
  const std::vector<std::string> use = models::command_to_use(settings.task, run);
  return line + (use.empty() ? "" : "   or   " + models::command_line(models::with_plugins(use)));
}

}  // namespace

CommandHelp train_help(const Arguments& given) {
  TrainCommandSettings own;
  models::TrainSettings settings = known_train_settings("train", take_own(given, settings_of(own)));
  own = {};  // the defaults
  std::vector<SettingHelp> all =
      with_rest(describe(settings_of(settings), models::foreign_keys()), describe(settings_of(own)));
  for (SettingHelp& setting : all)
    if (setting.key == "resume") setting.choices.clear();  // also a folder
  all.push_back({.key = "config", .section = "run", .help = "FILE.toml with settings by the same names"});
  return {"", std::move(all),
          "Files of settings (--config) apply first, and later values win.  Settings may also have the names of "
          "nanoGPT.  orrery train --resume=RUN resumes a run; further arguments change its settings.\n"
          "The files and the last validation are printed to standard output, everything else to standard "
          "error.  The exit code is 3 if the run is complete and its validation loss is above that of uniform "
          "guessing: the logarithm of the vocabulary size or of the number of classes.",
          "orrery train --data=examples/data/tinyshakespeare.txt --steps=200"};
}

namespace {

void check_same_arguments(Ranks& ranks, const Arguments& arguments) {
  const std::vector<std::string> all = ranks.meet(join(arguments, " "));
  for (int64_t r = 1; r < ranks.count(); ++r)
    check_usage(all[static_cast<size_t>(r)] == all[0], "train: ", ranks.name_of(r), " has other arguments, '",
                all[static_cast<size_t>(r)], "', than rank 0, '", all[0], "'; start all ranks with the same command");
}

// Rank 0 reads the arguments, because it may have files that others lack; all get its settings.
models::TrainSettings read_on_first(const Arguments& arguments, Ranks& ranks) {
  models::TrainSettings settings;
  Json all = Json::array();
  if (ranks.is_first()) {
    settings = read_train_settings("train", arguments, launch_of_process().by != Launch::By::none);
    for (const auto& [key, value] : list_settings(settings)) all.push_back({key, value});
  }
  if (ranks.count() == 1) return settings;
  const Json first = models::parse_own_json(ranks.meet(models::json_text(all))[0]);
  if (ranks.is_first()) return settings;
  Assignments assignments;
  for (const Json& each : first) assignments.emplace_back(each[0], each[1]);
  return models::make_settings(assignments);
}

int train_on(Ranks& ranks, const Arguments& arguments) {
  check_same_arguments(ranks, arguments);
  TrainCommandSettings own;
  const Arguments of_run = take_own(arguments, settings_of(own));
  ranks.set_wait_limit(own.wait_limit);
  check_usage(!own.plan || ranks.count() == 1, "train: --plan=yes plans one process, not ", ranks.count(),
              " ranks; leave the launcher out");
  const models::TrainSettings given = read_on_first(of_run, ranks);
  JsonOutput json(own.json);
  const auto plan = [&] { return models::plan_run(given); };
  const auto make = [&] { return std::make_unique<models::Trainer>(given, &ranks); };
  const auto with_progress = [&](const auto& work) {
    const Progress progress("reading data and planning memory");
    return given.resume ? models::with_plugin_hint(given.out, work) : work();
  };
  if (own.plan) return print_plan(with_progress(plan), json);
  const auto owned = with_progress(make);
  models::Trainer& trainer = *owned;
  trainer.name_plugins(models::plugins_of(given));
  const models::TrainSettings& settings = trainer.settings();
  const models::Task& task = trainer.task();
  print_message(text("host: ", host_name(), ", process ", ::getpid()));
  print_settings(settings);
  const PlannedRun planned{settings, task, trainer.memory_plan(), settings.steps - trainer.steps_done()};
  print_message(broken_line(text("model: ", with_commas(nn::count_parameters(trainer.model())), " parameters; ",
                                 data_text(task), "; ", ranks_text(ranks), pluralize(thread_count(), "thread")),
                            STDERR_FILENO));
  const std::string gpu = description(parse_device(settings.device));
  if (!gpu.empty()) print_message(broken_line("GPU: " + gpu, STDERR_FILENO));
  print_message(broken_line(memory_line(planned.memory), STDERR_FILENO));
  print_message(epoch_line(planned));
  print_message(time_line(planned));
  note_long_warmup(settings);
  if (trainer.steps_done() > 0) print_message(text("resumed after step ", trainer.steps_done()));

  const StopSignals signals;
  models::TrainingResult result;
  {
    Progress progress;
    models::TrainingEvents events;
    events.step = [&](const models::StepReport& report) {
      progress.step(report);
      if (report.exchange_seconds > 0)
        print_message(broken_line(forecast_line(report, ranks, settings), STDERR_FILENO));
    };
    events.validation = [&](int64_t step, const models::Validation& found) {
      print_message(text("step ", step, ": ", for_terminal(validation_text(found.loss, found.metrics))));
    };
    events.propagation = [&](const models::SignalPropagation& propagation) {
      print_message(signal_propagation_table(propagation));
    };
    events.checkpoint = [&](const std::string& path) { print_message("checkpoint: " + for_terminal(path)); };
    events.warning = [&](const std::string& message) { warn(message); };
    const bool ends_early = 0 < own.until && own.until < settings.steps;
    events.stop = [&] { return signals.received() != 0 || (ends_early && trainer.steps_done() >= own.until); };
    result = trainer.run(events);
  }
  print_result(settings, result);
  const int signal = signals.received();
  const int code = !result.stopped ? exit_code(task, result.validation_loss) : signal == 0 ? 0 : 128 + signal;
  if (json) json.print(result_json(settings, result, code));
  if (!result.stopped) print_message(next_line(settings));
  return code;
}

}  // namespace

int train(const Arguments& arguments) {
  return on_ranks([&](Ranks& ranks) { return train_on(ranks, arguments); });
}

}  // namespace orrery::program
