// orrery compare: differences between runs in settings, metrics and parameters.
#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include "engine/settings/registry.h"
#include "engine/system/files.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/commands/trained.h"
#include "examples/orrery/terminal/arguments.h"
#include "examples/orrery/terminal/plot.h"
#include "examples/orrery/terminal/table.h"
#include "models/study/comparison.h"
#include "models/study/figure_names.h"
#include "models/study/run_files.h"
#include "models/training/loss_meaning.h"
#include "models/training/run_folder.h"

namespace orrery::program {
namespace {

using models::LogRow;

struct CompareSettings {
  std::string figures;
  int64_t parameters = 10;

  template <class V>
  void visit(V& v) {
    v("figures", figures, "metrics to plot: PATTERN, ..., * matches any text; none: loss and validation_loss");
    v("parameters", parameters, "rows of the parameter table; 0: all", between(0, 1e6));
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
  std::map<std::string, Extent> figures = {};
};

ComparedRun read_run(const std::string& folder, size_t index) {
  models::check_is_run("compare", folder);
  ComparedRun run{std::to_string(index + 1), folder, models::settings_of_run(folder),
                  file_exists(folder + "/metrics.jsonl")};
  if (!run.logged) return run;
  run.log = models::RunLog::of_run(folder);
  run.log.each([&](const LogRow& row) {
    run.last = std::max(run.last, row.step);
    if (row.figures.contains("validation_loss")) run.validated = row;
    for (const auto& [name, value] : row.figures) {
      ComparedRun::Extent& extent = run.figures[name];
      extent.first = extent.rows == 0 ? row.step : std::min(extent.first, row.step);
      extent.last = std::max(extent.last, row.step), ++extent.rows;
    }
  });
  return run;
}

std::string counted(size_t count, const std::string& what) {
  return grouped(static_cast<int64_t>(count)) + " " + what + (count == 1 ? "" : "s");
}

void print_runs(const std::vector<ComparedRun>& runs) {
  Table table({"", "", ""}, "rll");
  for (const ComparedRun& run : runs)
    table.add(
        {run.number, run.folder,
         !run.logged ? "no metrics.jsonl" : text(grouped(run.last), " of ", grouped(run.settings.steps), " steps")});
  std::cout << table.print();
}

// Returns a table with a first column and one column per run.
Table table_of_runs(const std::string& first, const std::vector<ComparedRun>& runs, char alignment) {
  std::vector<std::string> header = {first};
  for (const ComparedRun& run : runs) header.push_back(run.number);
  return Table(header, "l" + std::string(runs.size(), alignment));
}

void print_settings(const std::vector<ComparedRun>& runs) {
  std::vector<models::TrainSettings> settings;
  for (const ComparedRun& run : runs) settings.push_back(run.settings);
  const std::vector<models::DifferingSetting> differing = models::differing_settings(settings);
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
    for (const auto& [name, extent] : run.figures) all.insert(name);
  const std::vector<std::string> names(all.begin(), all.end());
  std::vector<std::string> drawn;
  if (!patterns.empty()) {
    drawn = models::fitting_figures("compare", names, patterns);
  } else {
    for (const char* usual : {"loss", "validation_loss"})
      if (std::find(names.begin(), names.end(), usual) != names.end()) drawn.push_back(usual);
  }
  std::map<std::string, std::vector<Series>> curves;  // per metric, one series per run
  for (const std::string& name : drawn) {
    ComparedRun::Extent whole;
    for (const ComparedRun& run : runs) {
      const auto found = run.figures.find(name);
      if (found == run.figures.end()) continue;
      const ComparedRun::Extent& its = found->second;
      whole.first = whole.rows == 0 ? its.first : std::min(whole.first, its.first);
      whole.last = std::max(whole.last, its.last), whole.rows = std::max(whole.rows, its.rows);
    }
    if (whole.rows > 1)  // a single value is not a curve
      curves[name].assign(runs.size(), Series(static_cast<double>(whole.first), static_cast<double>(whole.last)));
  }
  for (size_t i = 0; i < runs.size(); ++i)
    runs[i].log.each([&](const LogRow& row) {
      for (auto& [name, series] : curves)
        if (const auto found = row.figures.find(name); found != row.figures.end())
          series[i].add(static_cast<double>(row.step), found->second);
    });
  for (const std::string& name : drawn)
    if (const auto found = curves.find(name); found != curves.end())
      std::cout << "\n" << plot_together(for_terminal(name) + " by step", found->second);
}

void print_validations(const std::vector<ComparedRun>& runs) {
  std::vector<LogRow> last;
  for (const ComparedRun& run : runs) last.push_back(run.validated);
  const std::vector<std::string> names = models::figure_names(last);
  if (names.empty()) return;
  Table table = table_of_runs("", runs, 'r');
  std::vector<std::string> steps = {"step"};
  for (const LogRow& row : last) steps.push_back(row.figures.empty() ? "-" : grouped(row.step));
  table.add(steps);
  for (const std::string& name : names) {
    std::vector<std::string> cells = {name};
    for (const LogRow& row : last) cells.push_back(row.figures.contains(name) ? fixed(row.figures.at(name), 4) : "-");
    table.add(cells);
  }
  std::cout << "\nthe last validation:\n" << table.print();
}

void print_meaning(const std::vector<ComparedRun>& runs) {
  std::vector<models::LossMeaning> meanings;
  for (const ComparedRun& run : runs) meanings.push_back(models::loss_meaning_of_run(run.folder));
  for (const std::string& note : models::notes_of_other_meanings(meanings))
    std::cout << "note: " << for_terminal(note) << "\n";
}

void print_parting(const ComparedRun& first, const ComparedRun& other) {
  std::cout << "\nmetrics of " << first.number << " and " << other.number << ": ";
  const ComparedRun& silent = first.logged ? other : first;
  if (!silent.logged) {
    std::cout << "not compared, because " << for_terminal(silent.folder) << " has no metrics.jsonl\n";
    return;
  }
  const models::LogComparison found = models::compare_logs(first.log, other.log);
  if (found.steps == 0) {
    std::cout << "not compared, because no step is in both logs\n";
    return;
  }
  if (found.parting < 0) {
    std::cout << "the same in all " << counted(static_cast<size_t>(found.steps), "step")
              << " that both logged, up to step " << grouped(found.last) << "\n";
    return;
  }
  std::cout << "the first difference is at step " << grouped(found.parting) << "\n";
  constexpr size_t most = 6;
  Table table({"", first.number, other.number}, "lll");
  for (size_t i = 0; i < std::min(most, found.figures.size()); ++i)
    table.add({found.figures[i].name, print_number(found.figures[i].first), print_number(found.figures[i].second)});
  std::cout << table.print();
  if (found.figures.size() > most)
    std::cout << "  and " << counted(found.figures.size() - most, "more metric") << " at this step\n";
}

struct LatestWeights {
  int64_t step = 0;
  std::string version;
  std::vector<NamedTensor> tensors;
};
// Returns the weights of the last checkpoint, or none.
std::optional<LatestWeights> weights_of(const std::string& folder) {
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

void print_parameters(const ComparedRun& first, const std::optional<LatestWeights>& a, const ComparedRun& other,
                      size_t most) {
  const std::optional<LatestWeights> b = weights_of(other.folder);
  if (a && b) warn_of_version(other.folder, b->version);
  std::cout << "\nparameters of " << first.number << " and " << other.number;
  if (!a || !b) {
    std::cout << ": not compared, because " << for_terminal((a ? other : first).folder) << " has no checkpoint\n";
    return;
  }
  const models::ParameterComparison found = models::compare_parameters(a->tensors, b->tensors);
  std::cout << ", of step " << grouped(a->step) << " and " << grouped(b->step) << ": " << found.differing.size()
            << " differ, " << found.same.size() << " are the same\n";
  if (!found.differing.empty()) {
    Table table({"", "|| a - b || / || a ||", "largest | a - b |"}, "lrr");
    const size_t shown = most == 0 ? found.differing.size() : std::min(most, found.differing.size());
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

}  // namespace

std::string compare_help(const Arguments&) {
  CompareSettings settings;
  return "orrery compare RUN RUN ...: folders of runs.  The others are compared with the first, and each run is\n"
         "called by its number.  It shows the settings that differ, curves in one plot (* where they meet), the\n"
         "metrics of the last validation, the first step at which a logged metric is not bit-identical (times\n"
         "excluded), and the parameters of the last checkpoints that differ most.  A run in training is compared\n"
         "up to its last logged step.\n" +
         describe(settings_of(settings)) +
         "\nExample: orrery compare runs/softmax runs/relu '--figures=loss,gradient_norm*' --parameters=0";
}

int compare(const Arguments& arguments) {
  CompareSettings s;
  const std::vector<std::string> folders = read_arguments("compare", arguments, settings_of(s));
  check(folders.size() >= 2, "compare: ", folders.size(), folders.size() == 1 ? " run is" : " runs are",
        " given; give two or more, as in orrery compare runs/a runs/b");
  std::vector<ComparedRun> runs;
  for (const std::string& folder : folders) runs.push_back(read_run(folder, runs.size()));
  print_runs(runs);
  print_settings(runs);
  print_curves(runs, s.figures);
  print_validations(runs);
  print_meaning(runs);
  for (size_t i = 1; i < runs.size(); ++i) print_parting(runs[0], runs[i]);
  const std::optional<LatestWeights> first = weights_of(runs[0].folder);
  if (first) warn_of_version(runs[0].folder, first->version);
  for (size_t i = 1; i < runs.size(); ++i) print_parameters(runs[0], first, runs[i], static_cast<size_t>(s.parameters));
  std::cout << std::flush;
  return 0;
}

}  // namespace orrery::program
