// orrery replay: repeats a step in which --nan_guard=yes found a non-finite value, with details.
#include <deque>
#include <iostream>
#include <optional>

#include "engine/types/usage_error.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/terminal/arguments.h"
#include "examples/orrery/terminal/progress.h"
#include "examples/orrery/terminal/table.h"
#include "models/training/run_folder.h"
#include "models/training/trainer.h"

namespace orrery::program {
namespace {

using models::NonFiniteReport;

struct ReplaySettings {
  int64_t calls = 8;
  template <class V>
  void visit(V& v) {
    v("calls", calls, "number of operations to print before the one with the non-finite value", between(0, 1e9));
  }
};

// Folder of the replay (empty: none given) and the settings of its run.
struct ReplayArguments {
  ReplaySettings settings;
  std::string folder;
  Assignments of_run, changes;
};

ReplayArguments read_replay_arguments(const Arguments& arguments) {
  ReplayArguments given;
  const std::vector<Setting> own = settings_of(given.settings);
  const auto parse = [&](models::TrainSettings known) {
    std::vector<Setting> all = own;
    for (const Setting& setting : settings_of(known)) all.push_back(setting);
    return parse_arguments("replay", arguments, all);
  };
  models::TrainSettings known;
  if (const std::vector<std::string> folders = parse(known).positional; !folders.empty()) {
    check_usage(folders.size() == 1, "replay: ", folders.size(), " folders are given; give one");
    given.folder = models::replay_folder_at(folders[0]);
    const std::string checkpoint = models::latest_checkpoint(given.folder);
    check(!checkpoint.empty(), "replay: ", given.folder, " has no saved state, because the run could not write ",
          "it; check the disk and train again with --nan_guard=yes");
    given.of_run = models::read_state(checkpoint).settings;
    known = models::make_settings(given.of_run);
  }
  for (const auto& [key, value] : parse(known).assignments) {
    if (find_setting(own, key))
      set_setting(std::span<const Setting>(own), "replay", key, value);
    else
      given.changes.emplace_back(key, value);
  }
  return given;
}

models::TrainSettings settings_of_replay(const ReplayArguments& given) {
  Assignments all = given.of_run;
  all.insert(all.end(), given.changes.begin(), given.changes.end());
  for (const char* key : {"resume", "nan_guard"}) all.emplace_back(key, "yes");
  all.emplace_back("out", given.folder);
  return as_usage([&] { return models::make_settings(all); });
}

std::string module_text(const std::string& path) { return path.empty() ? "no module" : path; }

// model > blocks.0 > blocks.0.attention
std::string path_text(const std::string& path) {
  if (path.empty()) return "none: the loss, or an operation between model and loss";
  std::string all = root_module;
  if (path == root_module) return all;
  for (size_t dot = 0; dot != std::string::npos;) {
    dot = path.find('.', dot + 1);
    const std::string prefix = path.substr(0, dot);
    if (!prefix.ends_with("blocks")) all += " > " + prefix;  // blocks is a list of modules
  }
  return all;
}

std::vector<std::string> cells(const TensorStats& f) {
  const bool any = f.non_finite() < f.shape.numel();
  return {text(name(f.dtype)),          text(f.shape),      any ? text(f.smallest) : "-",
          any ? text(f.largest) : "-",  with_commas(f.nan), with_commas(f.plus_infinity),
          with_commas(f.minus_infinity)};
}
std::vector<std::string> operator+(std::vector<std::string> row, const std::vector<std::string>& more) {
  row.insert(row.end(), more.begin(), more.end());
  return row;
}

std::string table_of(const OperationRecord& call) {
  Table table({"", "tensor", "dtype", "shape", "smallest", "largest", "NaN", "inf", "-inf"}, "llllrrrrr");
  for (const OperationRecord::Value& value : call.inputs)
    table.add(std::vector<std::string>{"input", value.name} + cells(value.stats));
  for (const OperationRecord::Value& value : call.outputs)
    table.add(std::vector<std::string>{"output", value.name} + cells(value.stats));
  return table.print();
}

std::string table_of(const std::deque<OperationRecord>& calls) {
  Table table({"operation", "direction", "module", "output", "smallest", "largest"}, "llllrr");
  for (const OperationRecord& call : calls)
    for (const OperationRecord::Value& value : call.outputs)
      if (is_floating(value.stats.dtype))
        table.add({call.operation, call.direction, module_text(call.module), value.name, text(value.stats.smallest),
                   text(value.stats.largest)});
  return table.print();
}

std::string step_text(const NonFiniteReport& report) {
  return text(report.validating ? "the validation after step " : "step ", report.step);
}

}  // namespace

CommandHelp replay_help(const Arguments& given) {
  const ReplayArguments known = read_replay_arguments(given);
  ReplaySettings settings = known.settings;
  models::TrainSettings of_run = known.folder.empty() ? models::TrainSettings() : settings_of_replay(known);
  return {"RUN is the folder of a run that --nan_guard=yes stopped, or of its replay.",
          with_rest(describe(settings_of(settings)), describe(settings_of(of_run))),
          "The state before the step is stored in RUN/replay, so the same settings give identical bits.  Settings of "
          "train repeat the step with other values; orrery replay RUN --help=all lists them, with the run's values.\n"
          "The exit code is 0 if a non-finite value is found again, else 1.",
          "orrery replay runs/latest --learning_rate=1e-4"};
}

int replay(const Arguments& arguments) {
  const ReplayArguments given = read_replay_arguments(arguments);
  check_usage(!given.folder.empty(),
              "replay: no folder is given; give that of a run that --nan_guard=yes stopped, as in orrery replay "
              "runs/latest");
  const NonFiniteReport before = models::read_report(given.folder);
  std::optional<Progress> progress(std::in_place, "repeating the step");
  models::Trainer trainer(settings_of_replay(given));
  const int64_t step = trainer.steps_done() + (before.validating ? 0 : 1);
  check(step == before.step, "replay: the state in ", given.folder, " begins step ", step,
        ", but its report (found.json) is of step ", before.step, "; train again with --nan_guard=yes");
  std::deque<OperationRecord> calls;
  const std::optional<NonFiniteReport> found = trainer.replay(before.validating, [&](const OperationRecord& call) {
    calls.push_back(call);
    if (static_cast<int64_t>(calls.size()) > given.settings.calls) calls.pop_front();
  });
  progress.reset();
  std::cout << step_text(before) << ", repeated from its state in " << for_terminal(given.folder) << "\n";
  if (!found) {
    std::cout << "not reproduced: every value is finite\nthe run reported: " << models::message(before) << std::endl;
    return 1;
  }
  std::cout << models::message(*found) << "\n"
            << (found->call == before.call ? "the same as in the run, number for number"
                                           : "the run reported another: " + models::message(before))
            << "\n\nmodule path: " << path_text(found->call.module) << "\n"
            << table_of(found->call);
  if (!calls.empty()) std::cout << "\noperations before it:\n" << table_of(calls);
  std::cout << std::flush;
  return 0;
}

}  // namespace orrery::program
