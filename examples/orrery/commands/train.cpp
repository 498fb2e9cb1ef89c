// orrery train: trains a model on its task.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <optional>
#include <set>

#include "engine/system/files.h"
#include "engine/system/parallel.h"
#include "engine/system/signals.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/commands/train_settings.h"
#include "examples/orrery/terminal/arguments.h"
#include "examples/orrery/terminal/outside.h"
#include "examples/orrery/terminal/probe_table.h"
#include "examples/orrery/terminal/profile_table.h"
#include "examples/orrery/terminal/progress.h"
#include "examples/orrery/terminal/table.h"
#include "examples/orrery/terminal/talk.h"
#include "models/catalogue/plugins.h"
#include "models/formats/shell_words.h"
#include "models/training/resume.h"
#include "models/training/run_folder.h"
#include "models/training/trainer.h"

namespace orrery::program {
namespace {

// Returns the exit code of a complete run.
int code_of(const models::Task& task, double loss) {
  const std::optional<double> guessing = task.guessing_loss();
  constexpr double told = 5e-5;  // smallest difference that the message resolves
  if (!guessing || loss <= *guessing + told) return 0;
  complain(text("train: the validation loss of ", fixed(loss, 4), " is above that of uniform guessing, ln ",
                task.choices(), " = ", fixed(*guessing, 4),
                "; the run was too short, or it diverged: try more --steps, a lower "
                "--learning_rate or --grad_clip=1"));
  return worse_than_guessing;
}

// Returns model, data, out and steps, and the settings that differ from the preset's and the task's.
std::vector<std::pair<std::string, std::string>> chosen_settings(const models::TrainSettings& settings) {
  const std::set<std::string> always = {"model", "data", "out", "steps"};
  const auto all = list_settings(settings), resolved = list_settings(models::resolved(settings)),
             usual = list_settings(models::resolved(models::TrainSettings(settings.model, settings.task)));
  std::vector<std::pair<std::string, std::string>> chosen;
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
      talk(line);
      line = "         ";
    }
    line += item;
  }
  talk(line);
}

std::string memory_line(const models::MemoryPlan& plan) {
  const auto megabytes = [](int64_t bytes) { return grouped((bytes + 500'000) / 1'000'000); };
  std::string kinds;
  for (const auto& [kind, bytes] : plan.kinds()) kinds += (kinds.empty() ? "" : ", ") + kind + " " + megabytes(bytes);
  return text("memory: about ", megabytes(plan.total()), " MB (", kinds, "), ", megabytes(plan.free), " MB are free");
}

std::string epoch_line(const models::Trainer& trainer) {
  const models::Task& task = trainer.task();
  const int64_t step = task.units_of_batch() * trainer.settings().gradient_accumulation_steps, epoch = task.epoch();
  if (epoch == 0) return text("epoch: none; data are generated, ", grouped(step), " ", task.unit(), " per step");
  return text("epoch: ", grouped(epoch), " ", task.unit(), ", ", counted((epoch + step - 1) / step, "step"), " of ",
              grouped(step));
}

std::string model_line(models::Trainer& trainer) {
  const models::Task& task = trainer.task();
  return text("model: ", grouped(nn::count_parameters(trainer.model())), " parameters; ", task.kind(), ": ",
              task.epoch() > 0 ? grouped(task.epoch()) + " training " : "generated training ", task.unit(), ", ",
              grouped(task.held_out()), " for validation; ", counted(thread_count(), "thread"));
}

// The time of a step is known before training only on the CPU.
std::string time_line(const models::Trainer& trainer) {
  const double step = trainer.memory_plan().seconds_of_step;
  if (step == 0) return "";
  const int64_t left = trainer.settings().steps - trainer.steps_done();
  const std::string milliseconds = step < 0.1 ? significant(step * 1e3, 2) : grouped(std::llround(step * 1e3));
  return text("time: about ", milliseconds, " ms per step, ", time_text(step * static_cast<double>(left)), " for ",
              counted(left, "step"), "\n");
}

std::string validation_text(double loss, const std::vector<std::pair<std::string, double>>& figures) {
  std::string all = "validation loss " + fixed(loss, 4);
  for (const auto& [name, value] : figures) all += ", " + in_words(name) + " " + fixed(value, 4);
  return all;
}

void print_files(const models::TrainSettings& settings, const std::string& checkpoint) {
  std::vector<std::string> files = {settings.out + "/settings.toml", settings.out + "/metrics.jsonl"};
  if (settings.probe) files.push_back(models::probe_file(settings.out));
  if (!checkpoint.empty())
    for (std::string& file : files_in(checkpoint)) files.push_back(std::move(file));
  std::cout << "files:\n";
  for (const std::string& file : files)
    if (file_exists(file)) std::cout << "  " << for_terminal(file) << "\n";
}

// Returns the commands that fit a trained model.
std::string next_line(const models::TrainSettings& settings) {
  const std::string run = settings.out.starts_with("-") ? "./" + settings.out : settings.out;
  std::string line = "next: " + models::command_line(models::with_plugins({"report", run}));
  const std::vector<std::string> use = models::words_to_use(settings.task, run);
  return line + (use.empty() ? "" : "   or   " + models::command_line(models::with_plugins(use)));
}

}  // namespace

std::string train_help(const Arguments& given) {
  models::TrainSettings settings = known_train_settings("train", given);
  return "Arguments are --key=value.  Files of settings (--config) apply first, and later values win.  nanoGPT's\n"
         "names are accepted too.  orrery train --resume=RUN resumes a run; further arguments change its settings.\n"
         "  --config=FILE.toml  settings from a file, by the same names\n" +
         describe(settings_of(settings)) +
         "\nThe files and the last validation are printed to the standard output, everything else to the standard\n"
         "error.  The exit code is 3 if the run is complete and its validation loss is above that of uniform\n"
         "guessing: the logarithm of the vocabulary size or of the number of classes.\n"
         "\nExample: orrery train --model=gpt-char-small --data=examples/data/tinyshakespeare.txt --steps=200";
}

int train(const Arguments& arguments) {
  const models::TrainSettings given = read_train_settings("train", arguments);
  const auto make = [&] { return std::make_unique<models::Trainer>(given); };
  const auto read = [&] {
    const Progress progress("reading data and planning memory");
    return given.resume ? models::with_plugins_told(given.out, make) : make();
  };
  const auto made = read();
  models::Trainer& trainer = *made;
  trainer.name_plugins(models::plugins_of(given));
  const models::TrainSettings& settings = trainer.settings();
  const models::Task& task = trainer.task();
  print_settings(settings);
  talk(model_line(trainer));
  talk(memory_line(trainer.memory_plan()));
  talk(epoch_line(trainer));
  talk(time_line(trainer));
  if (trainer.steps_done() > 0) talk(text("resumed after step ", trainer.steps_done()));

  const StopSignals signals;
  models::TrainingResult result;
  {
    Progress progress;
    models::TrainingEvents events;
    events.step = [&](const models::StepReport& report) { progress.step(report); };
    events.validation = [&](int64_t step, const models::Validation& found) {
      talk(text("step ", step, ": ", for_terminal(validation_text(found.loss, found.figures))));
    };
    events.probe = [&](const models::Probe& probe) { talk(probe_table(probe)); };
    events.checkpoint = [&](const std::string& path) { talk("checkpoint: " + for_terminal(path)); };
    events.warning = [&](const std::string& sentence) { warn(sentence); };
    events.stop = [&] { return signals.received() != 0; };
    result = trainer.run(events);
  }
  if (settings.profile) talk(profile_table(result.profile));
  print_files(settings, result.checkpoint);
  if (result.stopped) {
    talk(text("stopped after step ", result.steps_done, " of ", settings.steps, "; this command resumes it:\n",
              models::command_to_resume(settings.out)));
    return 128 + signals.received();
  }
  std::cout << validation_text(result.validation_loss, result.figures) << std::endl;
  const int code = code_of(task, result.validation_loss);
  talk(next_line(settings));
  return code;
}

}  // namespace orrery::program
