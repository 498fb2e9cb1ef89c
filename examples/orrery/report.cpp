// orrery report: runs, a sweep or a study, as one page.
#include <chrono>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "engine/base/files.h"
#include "engine/base/parallel.h"
#include "engine/base/version.h"
#include "examples/orrery/arguments.h"
#include "examples/orrery/commands.h"
#include "examples/orrery/report_page.h"
#include "examples/orrery/report_samples.h"
#include "examples/orrery/table.h"
#include "examples/orrery/version_text.h"
#include "models/study/report.h"
#include "models/study/report_curves.h"
#include "models/study/report_parts.h"
#include "models/study/report_study.h"
#include "models/study/report_sweep.h"
#include "models/study/run_files.h"

namespace orrery::program {
namespace {

using models::Json;

struct ReportSettings {
  std::string out, title;
  SampleSettings samples;
  int64_t threads = 0;

  template <class V>
  void visit(V& v) {
    v("out", out, "the page, one HTML file that needs nothing else; none: report.html in the first folder");
    v("title", title, "its title; none: the folders' names");
    v("samples", samples.samples, "texts of each language model, and four times as many sentences of a translator",
      between(0, 100));
    v("sample_tokens", samples.tokens, "tokens of a text", between(1, 100'000));
    v("seed", samples.seed, "same seed, same texts; each further text takes the next seed",
      between(-models::largest_seed, models::largest_seed));
    v("threads", threads, "cores to use; 0: all", between(0, 1024));
  }
};

std::string derivation_of(const std::string& family, const std::string& name) {
  const std::string folder = family + (family.ends_with('s') ? "es" : "s");
  const auto found = file_heads.find(folder + "/" + name);
  return found == file_heads.end() ? "" : std::string(found->second);
}

std::string moment() {  // the time, in UTC
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts);
  return text;
}

Json own_command(const Arguments& arguments) {
  std::string command = "orrery report";
  for (const std::string& word : arguments) command += " " + models::quoted_for_a_shell(word);
  return models::report_section("Commands", "text", "The command that makes this page", "",
                                {{"items", Json::array({{{"name", ""}, {"text", command}, {"copy", true}}})}});
}

Json environment(std::span<const models::ReportedRun> runs) {
  Json items = Json::array({{{"name", "the program that made this page"}, {"text", version_text()}, {"wrap", true}}});
  std::string plugins;
  for (const std::string& plugin : loaded_plugins()) plugins += (plugins.empty() ? "" : "\n") + plugin;
  if (!plugins.empty()) items.push_back({{"name", "its plug-ins"}, {"text", plugins}});
  std::string threads;
  for (const models::ReportedRun& run : runs)
    if (run.settings)
      threads += text(threads.empty() ? "" : "\n", run.name, ": device ", run.settings->device, ", dtype ",
                      run.settings->dtype, ", threads ",
                      run.settings->threads == 0 ? std::string("all") : std::to_string(run.settings->threads));
  if (!threads.empty()) items.push_back({{"name", "where the runs were trained"}, {"text", threads}});
  return models::report_section("Environment", "text", "Program and machine", "", {{"items", items}});
}

Json sections_of(std::span<const std::string> folders, const ReportSettings& s, const Arguments& arguments) {
  std::vector<models::ReportedRun> runs;
  Json sections = Json::array();
  for (const std::string& folder : folders) {
    check(folder_exists(folder), "report: there is no folder ", folder, "; orrery train --out=DIR makes one");
    if (models::is_study_folder(folder)) {
      models::add_study(sections, folder);
      continue;
    }
    if (models::is_sweep_folder(folder)) {
      models::add_sweep(sections, folder);
      continue;
    }
    check(
        models::is_run(folder), "report: ", folder,
        " holds neither a run nor a sweep nor a study; give the folder that orrery train, sweep or study has written");
    runs.push_back(models::read_reported_run(folder));
  }
  models::add_overview(sections, runs);
  models::add_notes(sections, runs);
  std::vector<models::LoggedRun> logged;
  for (models::ReportedRun& run : runs) logged.push_back({run.name, run.name, run.log});
  models::add_curves(sections, logged);
  add_samples(sections, runs, s.samples);
  models::add_settings(sections, runs);
  models::add_parts(sections, runs, derivation_of);
  models::add_data(sections, runs);
  models::add_commands(sections, runs);
  sections.push_back(own_command(arguments));
  sections.push_back(environment(runs));
  return sections;
}

}  // namespace

std::string report_help(const Arguments&) {
  ReportSettings settings;
  return "orrery report RUN [RUN...] --key=value: a folder of orrery train, several to lay them on top of each other,\n"
         "or the folder of an orrery sweep or study.  A run that is still being written is shown as far as it is.\n" +
         describe(settings_of(settings)) + "\nExample: orrery report runs/quickstart-1 --out=report.html";
}

int report(const Arguments& arguments) {
  ReportSettings s;
  const std::vector<std::string> folders = read_arguments("report", arguments, settings_of(s));
  check(!folders.empty(), "report: there is no run; give folders of runs, as in orrery report runs/latest");
  if (s.threads > 0) set_thread_count(static_cast<int>(s.threads));
  std::string title = s.title;
  if (title.empty())
    for (const std::string& folder : folders) title += (title.empty() ? "" : ", ") + folder;
  Json page = {{"title", title}, {"made", moment()}, {"version", build().version}};
  page["sections"] = sections_of(folders, s, arguments);
  const std::string out = s.out.empty() ? folders[0] + "/report.html" : s.out, html = page_of(page);
  write_file_atomically(out, html);
  std::cout << grouped(static_cast<int64_t>(page["sections"].size())) << " sections, "
            << grouped(static_cast<int64_t>(html.size())) << " bytes\n"
            << out << std::endl;
  return 0;
}

}  // namespace orrery::program
