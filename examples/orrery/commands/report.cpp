// orrery report: a page of runs, a sweep or a study.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "engine/system/files.h"
#include "engine/system/parallel.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/commands/report_analyses.h"
#include "examples/orrery/commands/report_samples.h"
#include "examples/orrery/page/report_page.h"
#include "examples/orrery/page/source_files.h"
#include "examples/orrery/terminal/arguments.h"
#include "examples/orrery/terminal/progress.h"
#include "examples/orrery/terminal/table.h"
#include "models/inspection/base/analysis.h"
#include "models/reports/report.h"
#include "models/reports/report_components.h"
#include "models/reports/report_curves.h"
#include "models/reports/report_signal_propagation.h"
#include "models/reports/report_study.h"
#include "models/reports/report_sweep.h"
#include "models/study/run_contents.h"

namespace orrery::program {
namespace {

using models::Json;

struct ReportSettings {
  std::string out, title, source_url;
  SampleSettings samples;
  ExampleArgument example;
  std::string analyses = page_analyses;
  int64_t threads = 0;

  template <class V>
  void visit(V& v) {
    v("out", out, "page to write, one self-contained HTML file; if not given, report.html in the first folder");
    v("title", title, "title of the page; if not given, the names of the folders");
    v("samples", samples.samples, "sample texts per language model; four times as many sentences per translation model",
      between(0, 100));
    v("sample_tokens", samples.tokens, "tokens per sample text", between(1, 100'000));
    v("analysis|look", analyses,
      "analyses to include, comma-separated, or all, or none; `orrery list analyses` prints them");
    example.visit(v);
    samples.bounds.visit(v);
    v("source_url", source_url, SourceLinks::help);
    v("seed", samples.seed, "random seed of the sample texts; each further text uses the next seed",
      between(-models::max_seed, models::max_seed));
    v("threads", threads, "cores to use; 0: OMP_NUM_THREADS, else all", between(0, 1024));
  }
};

Json sections_of(std::span<const std::string> folders, const ReportSettings& s, const SourceLinks& links,
                 const Arguments& arguments) {
  std::vector<models::ReportedRun> runs;
  Json sections = Json::array();
  for (const std::string& folder : folders) {
    check(folder_exists(folder), "report: there is no folder ", folder, "; orrery train --out=DIR creates one");
    if (models::is_study_folder(folder)) {
      models::add_study(sections, folder);
      continue;
    }
    if (models::is_sweep_folder(folder)) {
      models::add_sweep(sections, folder);
      continue;
    }
    check(models::is_run(folder), "report: ", folder,
          " is not the folder of a run, sweep or study; give a folder that orrery train, sweep or study has written");
    runs.push_back(models::read_reported_run(folder));
    if (runs.back().state) warn_about_version(folder, runs.back().state->version);
  }
  models::distinguish_names(runs);
  models::add_overview(sections, runs);
  models::add_notes(sections, runs);
  std::vector<models::LoggedRun> logged;
  for (models::ReportedRun& run : runs) logged.push_back({run.name, run.name, run.log, {}, run.data_since()});
  models::add_curves(sections, logged);
  models::add_signal_propagation(sections, runs);
  add_samples(sections, runs, s.samples);
  add_analyses(sections, runs, s.analyses, s.example, s.samples, links);
  models::add_settings(sections, runs);
  std::vector<models::TrainSettings> settings;
  for (const models::ReportedRun& run : runs)
    if (run.settings) settings.push_back(*run.settings);
  models::add_components(sections, settings, links);
  models::add_data(sections, runs);
  models::add_commands(sections, runs);
  sections.push_back(command_section("report", arguments));
  sections.push_back(environment_section(runs));
  return sections;
}

}  // namespace

CommandHelp report_help(const Arguments&) {
  ReportSettings settings;
  return {
      "RUN is the folder of a run, of several runs (plotted together), or of a sweep or study.  A run in training "
      "is shown up to its last logged step.",
      describe(settings_of(settings)), "", "orrery report runs/quickstart-1 --out=report.html"};
}

int report(const Arguments& arguments) {
  ReportSettings s;
  const std::vector<std::string> folders = read_arguments("report", arguments, settings_of(s));
  check_usage(!folders.empty(), "report: no folder is given; give folders of runs, as in orrery report runs/latest");
  if (s.analyses != "none") models::check_analyses(s.analyses);  // checks the names before reading the runs
  const std::vector<std::string> analyses = split_list(s.analyses);
  check_usage(std::find(analyses.begin(), analyses.end(), "head_patching") == analyses.end(),
              "report: head_patching takes values from a second example, which a report does not have; use orrery "
              "inspect --patch_from, or leave head_patching out");
  const auto check_belongs = [&](const char* key, bool given, const char* to, const std::string& its) {
    check_usage(!given || !its.empty() || !s.example.held_out.empty(), "report: --", key, " belongs to --", to,
                ", which is not given; add --", to, "=..., or leave --", key, " out");
  };
  check_belongs("label", s.example.label >= 0, "image", s.example.image);
  check_belongs("target", !s.example.target.empty(), "source", s.example.source);
  if (s.threads > 0) set_thread_count(static_cast<int>(s.threads));
  std::string title = s.title;
  if (title.empty())
    for (const std::string& folder : folders) title += (title.empty() ? "" : ", ") + folder;
  const PageOutput output{"report", s.out.empty() ? folders[0] + "/report.html" : s.out};
  output.check_free();
  const SourceLinks links("report", output.path, s.source_url);
  std::optional<Progress> progress(std::in_place, "making the page");
  Json sections = sections_of(folders, s, links, arguments);
  progress.reset();
  write_page(output, title, std::move(sections));
  return 0;
}

}  // namespace orrery::program
