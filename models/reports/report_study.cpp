#include "models/reports/report_study.h"

#include <map>
#include <nlohmann/json.hpp>

#include "engine/types/format.h"
#include "models/formats/csv.h"
#include "models/former_names.h"
#include "models/reports/report_sweep.h"
#include "models/study/verdict_file.h"

namespace orrery::models {
namespace {

Json text_item(const std::string& name, const std::string& text, bool copy = false) {
  return {{"name", name}, {"text", text}, {"wrap", !copy}, {"copy", copy}};
}

void add_claim(Json& sections, const StudyVerdict& v) {
  Json items = Json::array({text_item("claim", v.sentence), text_item("source", v.source)});
  std::string refuted, last;
  for (const ComparisonResult& each : v.result.comparisons) {  // one per swept value
    if (each.refuted_if != last) refuted += (refuted.empty() ? "" : "\n") + each.refuted_if;
    last = each.refuted_if;
  }
  items.push_back(text_item("refuted if, for " + v.metric, refuted));
  std::string found = v.smoke ? "not tested: this was a smoke run of two steps" : "";
  for (const ComparisonResult& each : v.result.comparisons)
    if (!each.sentence.empty()) found += (found.empty() ? "" : "\n") + each.sentence;
  items.push_back(text_item("results", found));
  for (const std::string& sentence : v.missing) items.push_back(text_item("missing", sentence));
  sections.push_back(report_section(
      "Verdict", "values", v.file, "",
      {{"items", Json::array({{{"name", "verdict"}, {"value", v.label()}, {"note", v.kind + ", " + v.samples}},
                              {{"name", "time"},
                               {"value", fixed(v.minutes, 1) + " min"},
                               {"note", "steps of all its runs, reused ones too: " + fixed(v.minutes_of_runs, 1) +
                                            " min"}}})}}));
  sections.push_back(report_section("Verdict", "text", "Claim and results", "", {{"items", items}}));
}

// One plot per metric and unit, because their scales differ.
void add_bars(Json& sections, const StudyVerdict& v) {
  std::map<std::pair<std::string, bool>, Json> plots;
  for (const ComparisonResult& each : v.result.comparisons)
    if (each.known)
      plots[{each.metric, each.name.ends_with(" - 1")}].push_back(
          {{"name", each.name + (each.at.empty() ? "" : ", " + each.at)},
           {"value", each.mean},
           {"low", each.low},
           {"high", each.high},
           {"note", ""}});
  for (const auto& [what, bars] : plots)
    sections.push_back(report_section(
        "Verdict", "bars", "Difference of " + humanize(what.first) + (what.second ? ", relative" : ""),
        std::string("Means over pairs of ") + (v.kind == "timed" ? "rounds" : "runs with the same seed") +
            ", with Student's 95 % confidence interval.",
        {{"quantity", "difference of " + humanize(what.first)}, {"rows", bars}}));
}

// Rounds numbers for the table.
std::string shown(const std::string& field, bool is_text) {
  if (is_text || field.find_first_of(".e") == std::string::npos) return field;
  return significant(parse_number("table.csv", field), 5);
}

void add_rows(Json& sections, const std::string& path) {
  const std::vector<CsvRow> rows = read_csv(path);
  check(!rows.empty(), path, ": the file is empty; run orrery study again to write it");
  Json columns = Json::array(), cells = Json::array();
  for (size_t k = 0; k < rows[0].size(); ++k)
    columns.push_back({{"name", rows[0][k]}, {"align", k < 3 ? "left" : "right"}});
  for (size_t i = 1; i < rows.size(); ++i) {
    Json row = Json::array();
    for (size_t k = 0; k < rows[i].size(); ++k)
      row.push_back(k == 0 ? with_current_metrics(rows[i][k]) : shown(rows[i][k], k < 3));
    cells.push_back(std::move(row));
  }
  sections.push_back(report_section("Comparison", "table", "Measured values", "",
                                    {{"columns", columns}, {"rows", cells}, {"marked", Json::array()}}));
}

}  // namespace

bool is_study_folder(const std::string& folder) { return file_exists(folder + "/verdict.json"); }

void add_study(Json& sections, const std::string& folder) {
  const StudyVerdict v = read_verdict(folder + "/verdict.json");
  add_claim(sections, v);
  add_bars(sections, v);
  add_rows(sections, folder + "/table.csv");
  if (file_exists(folder + "/runs.csv")) add_trained_runs(sections, folder, v.runs, v.metric);
  sections.push_back(report_section("Commands", "text", "The command that repeats the study", "",
                                    {{"items", Json::array({text_item("", v.command, true)})}}));
}

}  // namespace orrery::models
