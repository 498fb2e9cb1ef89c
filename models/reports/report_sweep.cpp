#include "models/reports/report_sweep.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/settings/spec.h"
#include "engine/system/files.h"
#include "engine/types/format.h"
#include "models/formats/csv.h"
#include "models/reports/report_curves.h"
#include "models/study/runs.h"

namespace orrery::models {
namespace {

constexpr size_t max_curves = 60;  // more lines are unreadable

class CsvTable {
 public:
  explicit CsvTable(const std::string& path) : path_(path), rows_(read_csv(path)) {
    check(!rows_.empty(), path, ": the file is empty; run orrery sweep again to write it");
  }
  size_t rows() const { return rows_.size() - 1; }
  const CsvRow& header() const { return rows_[0]; }
  const CsvRow& row(size_t i) const { return rows_[i + 1]; }
  size_t column(const std::string& name) const {
    const auto found = std::find(rows_[0].begin(), rows_[0].end(), name);
    check(found != rows_[0].end(), path_, ": column '", name, "' is missing; it is not a table of orrery sweep");
    return static_cast<size_t>(found - rows_[0].begin());
  }
  std::string at(size_t i, const std::string& name) const { return row(i)[column(name)]; }
  std::optional<double> number(size_t i, const std::string& column) const {
    const std::string field = at(i, column);
    if (field.empty()) return {};
    return parse_number(text(path_, ": row ", i + 1, ", ", column), field);
  }

 private:
  std::string path_;
  std::vector<CsvRow> rows_;
};

std::string shown(const std::optional<double>& x) { return x ? fixed(*x, 4) : ""; }
std::string shown_difference(const std::optional<double>& x) { return x ? signed_fixed(*x, 4) : ""; }
Json json_of(const std::optional<double>& x) { return x ? Json(*x) : Json(nullptr); }

void add_differences(Json& sections, const CsvTable& table, const std::string& metric, const std::string& note) {
  Json bars = Json::array(), rows = Json::array();
  const bool any = [&] {
    for (size_t i = 0; i < table.rows(); ++i)
      if (table.number(i, "difference")) return true;
    return false;
  }();
  for (size_t i = 0; i < table.rows(); ++i) {
    const auto mean = table.number(i, "mean"), difference = table.number(i, "difference"), low = table.number(i, "low"),
               high = table.number(i, "high");
    std::string state;
    for (const char* what : {"diverged", "failed"})
      if (const std::string count = table.at(i, what); count != "0")
        state += (state.empty() ? "" : ", ") + count + " " + what;
    const std::string seeds = table.at(i, "seeds");
    rows.push_back({table.at(i, "row"), shown(mean), seeds == "1" ? "" : shown(table.number(i, "deviation")), seeds,
                    shown_difference(difference),
                    low && high ? shown_difference(low) + " to " + shown_difference(high) : "", state});
    // A row without a value is shown too, with the state of its runs.
    bars.push_back({{"name", table.at(i, "row")},
                    {"value", any && mean ? Json(difference.value_or(0)) : json_of(mean)},
                    {"low", json_of(low)},
                    {"high", json_of(high)},
                    {"note", !mean                ? state
                             : any && !difference ? "baseline"
                                                  : ""}});
  }
  if (any)
    sections.push_back(report_section(
        "Comparison", "bars", "Difference of " + humanize(metric) + ", seed by seed",
        "Mean differences of runs with the same seed, with Student's 95 % confidence interval.  An interval without "
        "zero supports a difference." +
            (note.empty() ? "" : "  Note: " + note + "."),
        {{"quantity", "difference of " + humanize(metric)}, {"rows", bars}}));
  Json columns = Json::array();
  for (const char* name : {"row", "mean", "deviation", "seeds", "difference", "95 % interval", "state"})
    columns.push_back({{"name", std::string(name) == "mean" ? humanize(metric) : std::string(name)},
                       {"align", std::string(name) == "row" || std::string(name) == "state" ? "left" : "right"}});
  sections.push_back(report_section("Comparison", "table", "Rows of the sweep", note,
                                    {{"columns", columns}, {"rows", rows}, {"marked", Json::array()}}));
}

void add_runs(Json& sections, const CsvTable& runs) {
  Json columns = Json::array(), rows = Json::array();
  for (const std::string& name : runs.header()) {
    const bool is_text = name == "row" || name == "run" || name == "outcome" || name == "why";
    columns.push_back({{"name", humanize(name)}, {"align", is_text ? "left" : "right"}});
  }
  for (size_t i = 0; i < runs.rows(); ++i) {
    Json cells = Json::array();
    for (size_t k = 0; k < runs.header().size(); ++k) {
      const std::string& field = runs.row(i)[k];
      const bool is_metric = k >= 7 && field.find('.') != std::string::npos;  // metrics follow the run's description
      const auto number = is_metric ? runs.number(i, runs.header()[k]) : std::nullopt;
      cells.push_back(!number ? field : std::abs(*number) < 1e-3 ? significant(*number, 4) : fixed(*number, 4));
    }
    rows.push_back(std::move(cells));
  }
  sections.push_back(report_section("Comparison", "table", "Every run", "",
                                    {{"columns", columns}, {"rows", rows}, {"marked", Json::array()}}));
}

// Adds curves of the losses and `metric`; other metrics are in the reports of single runs.
void add_curves_of_pool(Json& sections, const CsvTable& runs, const std::string& pool, const std::string& metric) {
  std::vector<LoggedRun> logged;
  for (size_t i = 0; i < runs.rows() && logged.size() < max_curves; ++i) {
    const std::string id = runs.at(i, "run"), folder = pool + "/" + id;
    if (!is_run_id(id) || !file_exists(folder + "/metrics.jsonl")) continue;
    logged.push_back({runs.at(i, "row") + ", seed " + runs.at(i, "seed"),
                      runs.at(i, "row"),
                      RunLog::of_run(folder),
                      {metric, "loss", "validation_loss"}});
  }
  add_curves(sections, logged);
}

}  // namespace

void add_trained_runs(Json& sections, const std::string& folder, const std::string& pool, const std::string& metric) {
  const CsvTable runs(folder + "/runs.csv");
  add_runs(sections, runs);
  if (!pool.empty()) add_curves_of_pool(sections, runs, pool, metric);
}

std::vector<TabledRun> runs_in_tables(const std::string& folder) {
  std::vector<TabledRun> all;
  const auto read = [&](const char* name, const auto& take) {
    const std::string path = folder + "/" + name;
    if (!file_exists(path)) return;
    try {
      take(path);
    } catch (const Error& error) {
      fail("sweep: ", path, " was not written by a sweep (", error.what(), "); rename it, or choose another --out");
    }
  };
  read("sweep.json", [](const std::string& path) {
    text_member(parse_json(read_file(path, max_json_bytes), path), "command", path);
  });
  read("table.csv", [](const std::string& path) {
    const CsvTable table(path);
    for (const char* column : {"row", "seeds", "mean", "deviation", "difference", "failed"}) table.column(column);
  });
  read("runs.csv", [&](const std::string& path) {
    const CsvTable runs(path);
    for (const char* column : {"row", "seed", "run", "outcome", "step", "seconds"}) runs.column(column);
    for (size_t i = 0; i < runs.rows(); ++i)
      all.push_back({runs.at(i, "row"), runs.at(i, "seed"), runs.at(i, "run"), runs.at(i, "outcome")});
  });
  return all;
}

bool is_sweep_folder(const std::string& folder) {
  return file_exists(folder + "/table.csv") && file_exists(folder + "/runs.csv");
}

void add_sweep(Json& sections, const std::string& folder) {
  const std::string file = folder + "/sweep.json";
  std::string metric = "validation_loss", pool, command, note;  // metric: default for tables without sweep.json
  if (file_exists(file)) {
    const Json json = parse_json(read_file(file, max_json_bytes), file);
    metric = text_member(json, "metric", file), pool = text_member(json, "runs", file);
    command = text_member(json, "command", file);
    if (json.contains("note")) note = text_member(json, "note", file);
  }
  add_differences(sections, CsvTable(folder + "/table.csv"), metric, note);
  add_trained_runs(sections, folder, pool, metric);
  if (!command.empty())
    sections.push_back(report_section(
        "Commands", "text", "The command that repeats the sweep", "",
        {{"items",
          Json::array({{{"name", "trains missing runs and compares again"}, {"text", command}, {"copy", true}}})}}));
}

}  // namespace orrery::models
