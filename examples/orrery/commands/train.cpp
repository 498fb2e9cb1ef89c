// orrery train: trains a model on its task.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <optional>

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
#include "models/catalogue/plugins.h"
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

void print_settings(const models::TrainSettings& settings) {
  constexpr size_t columns = 100;
  std::string line = "settings:";
  for (const auto& [key, value] : list_settings(settings)) {
    const std::string item = " " + key + "=" + for_terminal(value);
    if (line.size() + item.size() > columns) {
      std::cout << line << "\n";
      line = "         ";
    }
    line += item;
  }
  std::cout << line << "\n";
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

}  // namespace

CommandHelp train_help(const Arguments& given) {
  models::TrainSettings settings = known_train_settings("train", given);
  std::vector<SettingHelp> all = describe(settings_of(settings), models::nanogpt_keys());
  all.push_back({.key = "config", .section = "run", .help = "FILE.toml with settings; by the same names"});
  return {"", std::move(all),
          "Files of settings (--config) apply first, and later values win.  Names of nanoGPT are accepted too.  orrery "
          "train --resume=RUN resumes a run; further arguments change its settings.\n"
          "The exit code is 3 if the run is complete and its validation loss is above that of uniform guessing: the "
          "logarithm of the vocabulary size or of the number of classes.",
          "orrery train --data=examples/data/tinyshakespeare.txt --steps=200"};
}

int train(const Arguments& arguments) {
  const models::TrainSettings given = read_train_settings("train", arguments);
  const auto make = [&] { return std::make_unique<models::Trainer>(given); };
  const auto made = given.resume ? models::with_plugins_told(given.out, make) : make();
  models::Trainer& trainer = *made;
  trainer.name_plugins(models::plugins_of(given));
  const models::TrainSettings& settings = trainer.settings();
  const models::Task& task = trainer.task();
  print_settings(settings);
  std::cout << "model: " << grouped(nn::count_parameters(trainer.model())) << " parameters; " << task.kind() << ": "
            << (task.epoch() > 0 ? grouped(task.epoch()) + " training " : "generated training ") << task.unit() << ", "
            << grouped(task.held_out()) << " for validation; " << counted(thread_count(), "thread") << "\n"
            << memory_line(trainer.memory_plan()) << "\n"
            << epoch_line(trainer) << "\n"
            << time_line(trainer);
  if (trainer.steps_done() > 0) std::cout << "resumed after step " << trainer.steps_done() << "\n";
  std::cout << std::flush;

  const StopSignals signals;
  models::TrainingResult result;
  {
    Progress progress;
    models::TrainingEvents events;
    events.step = [&](const models::StepReport& report) { progress.step(report); };
    events.validation = [&](int64_t step, const models::Validation& found) {
      progress.say(text("step ", step, ": ", validation_text(found.loss, found.figures)));
    };
    events.probe = [&](const models::Probe& probe) { std::cout << probe_table(probe) << std::flush; };
    events.checkpoint = [&](const std::string& path) { progress.say(text("checkpoint: ", path)); };
    events.warning = [&](const std::string& sentence) { progress.say("warning: " + sentence); };
    events.stop = [&] { return signals.received() != 0; };
    result = trainer.run(events);
  }
  if (settings.profile) std::cout << profile_table(result.profile);
  print_files(settings, result.checkpoint);
  if (result.stopped) {
    std::cout << "stopped after step " << result.steps_done << " of " << settings.steps
              << "; this command resumes it:\n"
              << models::command_to_resume(settings.out) << std::endl;
    return 128 + signals.received();
  }
  std::cout << validation_text(result.validation_loss, result.figures) << std::endl;
  return code_of(task, result.validation_loss);
}

}  // namespace orrery::program
