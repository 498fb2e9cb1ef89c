// orrery compare: differences between runs in settings, metrics and parameters.
#include <algorithm>
#include <iostream>
#include <map>
#include <optional>
#include <set>

#include "engine/settings/registry.h"
#include "engine/system/files.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/commands/load_run.h"
#include "examples/orrery/terminal/arguments.h"
#include "examples/orrery/terminal/json_output.h"
#include "examples/orrery/terminal/messages.h"
#include "examples/orrery/terminal/plot.h"
#include "examples/orrery/terminal/progress.h"
#include "examples/orrery/terminal/table.h"
#include "models/study/comparison.h"
#include "models/study/metric_names.h"
#include "models/study/run_contents.h"
#include "models/training/loss_settings.h"
#include "models/training/run_folder.h"

namespace orrery::program {
namespace {

using models::LogRow;

struct CompareSettings {
  std::string metrics;
  int64_t parameters = 10;
  bool json = false;

  template <class V>
  void visit(V& v) {
    v("metrics|figures", metrics,
      "metrics to plot: PATTERN, ..., * matches any text; if not given, loss and validation_loss");
    v("parameters", parameters, "rows of the parameter table; 0: all", between(0, 1e6));
    v("json", json, json_help);
  }
};

struct ComparedRun {
  std::string number, folder;  // number: from 1, identifies the run in the output
  models::TrainSettings settings;
  bool logged = false;
  models::RunLog log = {};
  int64_t last = 0;       // last step of the log
  LogRow validated = {};  // last row of a validation
  struct Extent {
    int64_t rows = 0, first = 0, last = 0;  // steps
  };
  std::map<std::string, Extent> metrics = {};
};

ComparedRun read_run(const std::string& folder, size_t index) {
  models::check_is_run("compare", folder);
  const Progress progress("reading the log of " + folder);
  ComparedRun run{std::to_string(index + 1), folder, models::settings_of_run(folder),
                  file_exists(folder + "/metrics.jsonl")};
  if (!run.logged) return run;
  run.log = models::RunLog::of_run(folder);
  run.log.each([&](const LogRow& row) {
    run.last = std::max(run.last, row.step);
    if (row.metrics.contains("validation_loss")) run.validated = row;
    for (const auto& [name, value] : row.metrics) {
      ComparedRun::Extent& extent = run.metrics[name];
      extent.first = extent.rows == 0 ? row.step : std::min(extent.first, row.step);
      extent.last = std::max(extent.last, row.step), ++extent.rows;
    }
  });
  return run;
}

std::string pluralize(size_t count, const std::string& what) {
  return with_commas(static_cast<int64_t>(count)) + " " + what + (count == 1 ? "" : "s");
}

void print_runs(const std::vector<ComparedRun>& runs) {
  Table table({"", "", ""}, "rll");
  for (const ComparedRun& run : runs)
    table.add({run.number, run.folder,
               !run.logged ? "no metrics.jsonl"
                           : text(with_commas(run.last), " of ", with_commas(run.settings.steps), " steps")});
  std::cout << table.print();
}

// Returns a table with a first column and one column per run.
Table table_of_runs(const std::string& first, const std::vector<ComparedRun>& runs, char alignment) {
  std::vector<std::string> header = {first};
  for (const ComparedRun& run : runs) header.push_back(run.number);
  return Table(header, "l" + std::string(runs.size(), alignment));
}

std::vector<models::TrainSettings> settings_of_runs(const std::vector<ComparedRun>& runs) {
  std::vector<models::TrainSettings> settings;
  for (const ComparedRun& run : runs) settings.push_back(run.settings);
  return settings;
}

void print_settings(const std::vector<ComparedRun>& runs, const std::vector<models::DifferingSetting>& differing) {
  if (differing.empty()) {
    std::cout << "\nsettings: the same\n";
    return;
  }
  Table table = table_of_runs("", runs, 'l');
  for (const models::DifferingSetting& setting : differing) {
    std::vector<std::string> row = {setting.key};
    for (const auto& value : setting.values) row.push_back(!value ? "-" : value->empty() ? "\"\"" : *value);
    table.add(row);
  }
  std::cout << "\nsettings that differ:\n" << table.print();
}

void print_curves(const std::vector<ComparedRun>& runs, const std::string& patterns) {
  std::set<std::string> all;
  for (const ComparedRun& run : runs)
    for (const auto& [name, extent] : run.metrics) all.insert(name);
  const std::vector<std::string> names(all.begin(), all.end());
  std::vector<std::string> drawn;
  if (!patterns.empty()) {
    drawn = as_usage([&] { return models::matching_metrics("compare", names, patterns); });
  } else {
    for (const char* metric : {"loss", "validation_loss"})
      if (std::find(names.begin(), names.end(), metric) != names.end()) drawn.push_back(metric);
  }
  std::map<std::string, std::vector<Series>> curves;  // per metric, one series per run
  for (const std::string& name : drawn) {
    ComparedRun::Extent whole;
    for (const ComparedRun& run : runs) {
      const auto found = run.metrics.find(name);
      if (found == run.metrics.end()) continue;
      const ComparedRun::Extent& its = found->second;
      whole.first = whole.rows == 0 ? its.first : std::min(whole.first, its.first);
      whole.last = std::max(whole.last, its.last), whole.rows = std::max(whole.rows, its.rows);
    }
    if (whole.rows > 1)  // a single value is not a curve
      curves[name].assign(runs.size(), Series(static_cast<double>(whole.first), static_cast<double>(whole.last)));
  }
  std::optional<Progress> progress(std::in_place, "reading the curves");
  for (size_t i = 0; i < runs.size(); ++i)
    runs[i].log.each([&](const LogRow& row) {
      for (auto& [name, series] : curves)
        if (const auto found = row.metrics.find(name); found != row.metrics.end())
          series[i].add(static_cast<double>(row.step), found->second);
    });
  progress.reset();
  for (const std::string& name : drawn)
    if (const auto found = curves.find(name); found != curves.end())
      std::cout << "\n" << plot_together(for_terminal(name) + " by step", found->second);
}

void print_validations(const std::vector<ComparedRun>& runs) {
  std::vector<LogRow> last;
  for (const ComparedRun& run : runs) last.push_back(run.validated);
  const std::vector<std::string> names = models::metric_names(last);
  if (names.empty()) return;
  Table table = table_of_runs("", runs, 'r');
  std::vector<std::string> steps = {"step"};
  for (const LogRow& row : last) steps.push_back(row.metrics.empty() ? "-" : with_commas(row.step));
  table.add(steps);
  for (const std::string& name : names) {
    std::vector<std::string> cells = {name};
    for (const LogRow& row : last) cells.push_back(row.metrics.contains(name) ? fixed(row.metrics.at(name), 4) : "-");
    table.add(cells);
  }
  std::cout << "\nthe last validation:\n" << table.print();
}

// The metrics of a run compared with those of the first, or the reason why they are not.
struct ComparedMetrics {
  std::string not_compared;
  models::LogComparison found = {};
};
ComparedMetrics compare_metrics(const ComparedRun& first, const ComparedRun& other) {
  const ComparedRun& silent = first.logged ? other : first;
  if (!silent.logged) return {silent.folder + " has no metrics.jsonl"};
  const Progress progress("comparing the logs");
  ComparedMetrics compared{"", models::compare_logs(first.log, other.log)};
  if (compared.found.steps == 0) compared.not_compared = "no step is in both logs";
  return compared;
}

void print_metrics(const ComparedRun& first, const ComparedRun& other, const ComparedMetrics& compared) {
  const models::LogComparison& found = compared.found;
  const std::string head = "\nmetrics of " + first.number + " and " + other.number + ": ";
  if (!compared.not_compared.empty()) {
    std::cout << head << "not compared, because " << for_terminal(compared.not_compared) << "\n";
    return;
  }
  if (found.first_difference < 0) {
    std::cout << head << "the same in all " << pluralize(static_cast<size_t>(found.steps), "step")
              << " that both logged, up to step " << with_commas(found.last) << "\n";
    return;
  }
  std::cout << head << "the first difference is at step " << with_commas(found.first_difference) << "\n";
  constexpr size_t max_rows = 6;
  Table table({"", first.number, other.number}, "lll");
  for (size_t i = 0; i < std::min(max_rows, found.metrics.size()); ++i)
    table.add({found.metrics[i].name, print_number(found.metrics[i].first), print_number(found.metrics[i].second)});
  std::cout << table.print();
  if (found.metrics.size() > max_rows)
    std::cout << "  and " << pluralize(found.metrics.size() - max_rows, "more metric") << " at this step\n";
}

struct LatestWeights {
  int64_t step = 0;
  std::string version;
  std::vector<NamedTensor> tensors;
};
// Returns the weights of the last checkpoint, or none.
std::optional<LatestWeights> weights_of(const std::string& folder) {
  const Progress progress("reading the weights of " + folder);
  return models::read_newest([&] { return models::latest_checkpoint(folder, true); },
                             [](const std::string& checkpoint) -> std::optional<LatestWeights> {
                               if (checkpoint.empty()) return {};
                               const models::CheckpointState state = models::read_state(checkpoint);
                               return LatestWeights{state.step, state.version,
                                                    read_safetensors(checkpoint + "/" + models::weights_name).tensors};
                             });
}

void print_names(const std::string& what, const std::vector<std::string>& names) {
  if (names.empty()) return;
  std::cout << "  " << what << ":\n";
  for (const std::string& name : names) std::cout << "    " << for_terminal(name) << "\n";
}

// The parameters of a run compared with those of the first, or the reason why they are not.
struct ComparedParameters {
  std::string not_compared;
  int64_t first_step = 0, step = 0;  // of the checkpoints
  models::ParameterComparison found = {};
};
ComparedParameters compare_weights(const ComparedRun& first, const std::optional<LatestWeights>& a,
                                   const ComparedRun& other) {
  const std::optional<LatestWeights> b = weights_of(other.folder);
  if (a && b) warn_about_version(other.folder, b->version);
  if (!a || !b) return {(a ? other : first).folder + " has no checkpoint"};
  return {"", a->step, b->step, models::compare_parameters(a->tensors, b->tensors)};
}

void print_parameters(const ComparedRun& first, const ComparedRun& other, const ComparedParameters& compared,
                      size_t max_rows) {
  const models::ParameterComparison& found = compared.found;
  std::cout << "\nparameters of " << first.number << " and " << other.number;
  if (!compared.not_compared.empty()) {
    std::cout << ": not compared, because " << for_terminal(compared.not_compared) << "\n";
    return;
  }
  std::cout << ", of step " << with_commas(compared.first_step) << " and " << with_commas(compared.step) << ": "
            << found.differing.size() << " differ, " << found.same.size() << " are the same\n";
  if (!found.differing.empty()) {
    Table table({"", "|| a - b || / || a ||", "largest | a - b |"}, "lrr");
    const size_t shown = max_rows == 0 ? found.differing.size() : std::min(max_rows, found.differing.size());
    for (size_t i = 0; i < shown; ++i) {
      const models::ParameterDifference& each = found.differing[i];
      table.add({each.name, text(each.relative), text(each.largest)});
    }
    std::cout << table.print();
    if (shown < found.differing.size())
      std::cout << "  and " << found.differing.size() - shown << " that differ less; --parameters=0 shows all\n";
  }
  print_names("only in " + first.number, found.first_alone);
  print_names("only in " + other.number, found.second_alone);
  print_names("with different shapes", found.other_shape);
}

// All that is compared, for text and JSON.
struct Comparison {
  std::vector<ComparedRun> runs;
  std::vector<models::DifferingSetting> settings;
  std::vector<std::string> notes;
  std::vector<ComparedMetrics> metrics = {};  // of each run but the first
  std::vector<ComparedParameters> parameters = {};
};
Comparison compare_runs(std::vector<ComparedRun> runs) {
  std::vector<models::LossMeaning> meanings;
  for (const ComparedRun& run : runs) meanings.push_back(models::loss_meaning_of_run(run.folder));
  const std::vector<models::TrainSettings> settings = settings_of_runs(runs);
  Comparison all{std::move(runs), models::differing_settings(settings), models::comparability_notes(meanings)};
  const ComparedRun& first = all.runs[0];
  const std::optional<LatestWeights> weights = weights_of(first.folder);
  if (weights) warn_about_version(first.folder, weights->version);
  for (size_t i = 1; i < all.runs.size(); ++i) {
    all.metrics.push_back(compare_metrics(first, all.runs[i]));
    all.parameters.push_back(compare_weights(first, weights, all.runs[i]));
  }
  return all;
}

void print_comparison(const Comparison& all, const CompareSettings& s) {
  print_runs(all.runs);
  print_settings(all.runs, all.settings);
  print_curves(all.runs, s.metrics);
  print_validations(all.runs);
  for (const std::string& each : all.notes) note(each);
  for (size_t i = 1; i < all.runs.size(); ++i) print_metrics(all.runs[0], all.runs[i], all.metrics[i - 1]);
  for (size_t i = 1; i < all.runs.size(); ++i)
    print_parameters(all.runs[0], all.runs[i], all.parameters[i - 1], static_cast<size_t>(s.parameters));
  std::cout << std::flush;
}

Json json_of(const ComparedRun& run) {
  Json validation;  // null: none
  if (!run.validated.metrics.empty())
    validation = {{"step", run.validated.step}, {"metrics", json_numbers(run.validated.metrics)}};
  return {{"run", run.folder},
          {"step", run.logged ? Json(run.last) : Json()},
          {"steps", run.settings.steps},
          {"last_validation", validation}};
}

Json json_of(const std::vector<models::DifferingSetting>& settings) {
  Json all = Json::object();
  for (const models::DifferingSetting& setting : settings) {
    Json& values = all[setting.key] = Json::array();
    for (const auto& value : setting.values) values.push_back(value ? Json(*value) : Json());
  }
  return all;
}

Json json_of(const ComparedMetrics& compared) {
  if (!compared.not_compared.empty()) return {{"not_compared", compared.not_compared}};
  const models::LogComparison& found = compared.found;
  Json difference;  // null: bit-identical
  if (found.first_difference >= 0) {
    Json metrics = Json::object();
    for (const auto& each : found.metrics) metrics[each.name] = {json_number(each.first), json_number(each.second)};
    difference = {{"step", found.first_difference}, {"metrics", metrics}};
  }
  return {{"common_steps", found.steps}, {"last_common_step", found.last}, {"first_difference", difference}};
}

Json json_of(const ComparedParameters& compared) {
  if (!compared.not_compared.empty()) return {{"not_compared", compared.not_compared}};
  const models::ParameterComparison& found = compared.found;
  Json differing = Json::array();
  for (const models::ParameterDifference& each : found.differing)
    differing.push_back(
        {{"name", each.name}, {"relative", json_number(each.relative)}, {"largest", json_number(each.largest)}});
  return {{"first_step", compared.first_step},
          {"step", compared.step},
          {"differing", differing},
          {"same", found.same},
          {"only_in_first", found.first_alone},
          {"only_in_this", found.second_alone},
          {"other_shape", found.other_shape}};
}

Json json_of(const Comparison& all) {
  Json runs = Json::array(), with_first = Json::array();
  for (const ComparedRun& run : all.runs) runs.push_back(json_of(run));
  for (size_t i = 1; i < all.runs.size(); ++i)
    with_first.push_back({{"run", all.runs[i].folder},
                          {"metrics", json_of(all.metrics[i - 1])},
                          {"parameters", json_of(all.parameters[i - 1])}});
  return {{"runs", runs}, {"settings", json_of(all.settings)}, {"notes", all.notes}, {"with_first", with_first}};
}

}  // namespace

CommandHelp compare_help(const Arguments&) {
  CompareSettings settings;
  return {
      "The others are compared with the first run, and each run is called by its number.  The command shows the "
      "settings that differ, curves in one plot (* where they meet), the metrics of the last validation, the first "
      "step at which a logged metric is not bit-identical (times excluded), and the parameters of the last "
      "checkpoints that differ most.  A run in training is compared up to its last logged step.  JSON has all "
      "parameters that differ and no curves (orrery metrics has them).",
      describe(settings_of(settings)), "",
      "orrery compare runs/softmax runs/relu '--metrics=loss,gradient_norm*' --parameters=0"};
}

int compare(const Arguments& arguments) {
  CompareSettings s;
  const std::vector<std::string> folders = read_arguments("compare", arguments, settings_of(s));
  check_usage(folders.size() >= 2, "compare: ", folders.size(), folders.size() == 1 ? " run is" : " runs are",
              " given; give two or more, as in orrery compare runs/a runs/b");
  JsonOutput json(s.json);
  std::vector<ComparedRun> runs;
  for (const std::string& folder : folders) runs.push_back(read_run(folder, runs.size()));
  const Comparison all = compare_runs(std::move(runs));
  json ? json.print(json_of(all)) : print_comparison(all, s);
  return 0;
}

}  // namespace orrery::program
