#include "models/reports/report.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/types/format.h"
#include "models/catalogue/plugins.h"
#include "models/formats/base64.h"
#include "models/formats/shell_words.h"
#include "models/study/statistics.h"
#include "models/tasks/base/task.h"
#include "models/training/loss_settings.h"
#include "models/training/memory_plan.h"
#include "models/training/resume.h"

namespace orrery::models {
namespace {

using Row = std::vector<std::string>;

std::string duration(double seconds) {
  if (seconds < 60) return fixed(seconds, 0) + " s";
  if (seconds < 3600) return fixed(seconds / 60, 1) + " min";
  return fixed(seconds / 3600, 1) + " h";
}

Json table(const std::vector<std::pair<std::string, std::string>>& columns, const std::vector<Row>& rows,
           const std::vector<size_t>& marked = {}) {
  Json names = Json::array();
  for (const auto& [name, align] : columns) names.push_back({{"name", name}, {"align", align}});
  return {{"columns", names}, {"rows", rows}, {"marked", marked}};
}

void add_overview_of(Json& sections, const ReportedRun& run) {
  Json items = Json::array();
  const auto item = [&](const std::string& name, const std::string& value, const std::string& note) {
    items.push_back({{"name", name}, {"value", value}, {"note", note}});
  };
  double last = NAN, best = NAN, loss = NAN, milliseconds = 0;
  int64_t last_at = 0, best_at = 0;
  constexpr std::string_view per_second = "_per_second";
  std::string unit;
  std::vector<double> speeds;
  const int64_t since = run.data_since();
  run.log.each([&](const LogRow& row) {
    const auto metric = [&](const char* key) {
      const auto found = row.metrics.find(key);
      return found == row.metrics.end() ? NAN : found->second;
    };
    if (const double x = metric("validation_loss"); std::isfinite(x) && row.step > since) {
      last = x, last_at = row.step;
      if (!(best <= x)) best = x, best_at = row.step;
    }
    if (row.metrics.contains("loss")) loss = metric("loss");
    if (const double x = metric("step_ms"); std::isfinite(x)) milliseconds += x;
    for (const auto& [key, x] : row.metrics)
      if (key.ends_with(per_second) && std::isfinite(x))
        unit = key.substr(0, key.size() - per_second.size()), speeds.push_back(x);
  });
  if (std::isfinite(best)) {
    const std::string of = since > 0 ? text("lowest on the data since step ", with_commas(since)) : "lowest";
    item("validation loss", fixed(best, 4), text(of, ", at step ", with_commas(best_at)));
    if (last_at != best_at) item("last validation loss", fixed(last, 4), "at step " + with_commas(last_at));
  } else if (std::isfinite(loss)) {
    item("loss", fixed(loss, 4),
         text("last step; no validation ", since > 0 ? text("on the data since step ", with_commas(since)) : "yet"));
  }
  const int64_t step = run.last_step(), steps = run.settings ? run.settings->steps : step;
  const char* const state = step >= steps ? "all steps" : "so far; the run is in progress or was interrupted";
  item("steps", with_commas(step), step >= steps ? state : text("of ", with_commas(steps), " ", state));
  if (milliseconds > 0) item("time of all steps", duration(milliseconds / 1000), "without validations and checkpoints");
  if (!speeds.empty()) item(unit + " per second", with_commas(std::llround(median_of(speeds))), "median of all steps");
  if (run.settings) {
    constexpr int64_t max_count = int64_t{1} << 50;
    const auto count = [&] { return count_parameters(*run.settings, max_count); };
    if (const auto parameters = with_plugin_hint(run.folder, count))
      item("parameters", with_commas(*parameters), run.settings->model);
  }
  sections.push_back(report_section("Overview", "values", run.name, "", {{"items", items}}));
}

std::vector<std::string> keys_of(std::span<const ReportedRun> runs) {
  std::vector<std::string> keys;
  for (const ReportedRun& run : runs)
    if (run.settings)
      for (const auto& [key, value] : list_settings(*run.settings))
        if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  return keys;
}

}  // namespace

Json report_section(const std::string& group, const std::string& kind, const std::string& title,
                    const std::string& caption, Json data) {
  return {{"group", group}, {"kind", kind}, {"title", title}, {"text", caption}, {"data", std::move(data)}};
}

Json packed_values(std::span<const float> values) {
  constexpr int largest = 65534, not_finite = 65535;
  constexpr size_t shortest_gap = 8;
  double low = INFINITY, high = -INFINITY;
  for (const float x : values)
    if (std::isfinite(x)) low = std::min<double>(low, x), high = std::max<double>(high, x);
  if (low > high) low = high = 0;
  std::string bytes;
  Json gaps = Json::array();
  const auto is_finite = [](float x) { return std::isfinite(x); };
  for (size_t i = 0; i < values.size(); ++i) {
    const auto next = std::find_if(values.begin() + static_cast<std::ptrdiff_t>(i), values.end(), is_finite);
    if (const size_t gap = static_cast<size_t>(next - values.begin()) - i; gap >= shortest_gap) {
      gaps.push_back(i), gaps.push_back(gap);
      i += gap - 1;
      continue;
    }
    const double fraction = high > low ? (values[i] - low) / (high - low) : 0;
    const int number = is_finite(values[i]) ? static_cast<int>(std::lround(fraction * largest)) : not_finite;
    bytes += static_cast<char>(number & 255);
    bytes += static_cast<char>(number >> 8);
  }
  return {{"low", low}, {"high", high}, {"count", values.size()}, {"gaps", gaps}, {"base64", base64(bytes)}};
}

void add_overview(Json& sections, std::span<const ReportedRun> runs) {
  for (const ReportedRun& run : runs) add_overview_of(sections, run);
}

void add_settings(Json& sections, std::span<const ReportedRun> runs) {
  const std::vector<std::string> keys = keys_of(runs);
  if (keys.empty()) return;
  std::vector<std::pair<std::string, std::string>> columns = {{"setting", "left"}};
  for (const ReportedRun& run : runs) columns.emplace_back(runs.size() == 1 ? "value" : run.name, "left");
  std::vector<Row> rows;
  std::vector<size_t> marked;
  for (const std::string& key : keys) {
    Row row = {key};
    for (const ReportedRun& run : runs) row.push_back(run.setting(key));
    if (std::adjacent_find(row.begin() + 1, row.end(), std::not_equal_to<>()) != row.end())
      marked.push_back(rows.size());
    rows.push_back(std::move(row));
  }
  if (runs.size() == 1) {
    const TrainSettings& own = *runs[0].settings;
    const auto defaults = list_settings(resolved(TrainSettings(own.model, own.task)));
    for (size_t i = 0; i < rows.size(); ++i)
      if (std::find(defaults.begin(), defaults.end(), std::pair(rows[i][0], rows[i][1])) == defaults.end())
        marked.push_back(i);
  }
  const char* const title = marked.empty()     ? "All settings"
                            : runs.size() == 1 ? "Settings that differ from the preset"
                                               : "Settings that differ";
  const char* const caption = marked.empty() && runs.size() > 1 ? "These runs have the same settings." : "";
  sections.push_back(report_section("Settings", "table", title, caption, table(columns, rows, marked)));
}

void add_data(Json& sections, std::span<const ReportedRun> runs) {
  std::vector<Row> rows;
  for (const ReportedRun& run : runs) {
    const auto row = [&](const std::string& what, const std::string& name, int64_t bytes, const std::string& hash) {
      Row cells = {what, name, bytes < 0 ? "" : with_commas(bytes), hash};
      if (runs.size() > 1) cells.insert(cells.begin(), run.name);
      rows.push_back(std::move(cells));
    };
    for (const char* key : paths_of_data) {
      const std::string path = run.setting(key);
      const bool is_training = std::string(key) == "data" && run.state && !run.state->text.sha256.empty();
      if (path.empty()) continue;
      row(key, path, is_training ? static_cast<int64_t>(run.state->text.bytes) : -1,
          is_training ? run.state->text.sha256 : "");
    }
    if (!run.state) continue;
    for (const auto& [name, print] : run.state->files)
      row("checkpoint", run.newest + "/" + name, static_cast<int64_t>(print.bytes), print.sha256);
  }
  if (rows.empty()) return;
  std::vector<std::pair<std::string, std::string>> columns = {
      {"kind", "left"}, {"path", "left"}, {"bytes", "right"}, {"SHA-256", "left"}};
  if (runs.size() > 1) columns.insert(columns.begin(), {"run", "left"});
  sections.push_back(report_section("Data", "table", "Data and checkpoint files",
                                    "As recorded in the newest checkpoint.", table(columns, rows)));
}

void add_commands(Json& sections, std::span<const ReportedRun> runs) {
  if (runs.empty()) return;
  Json items = Json::array();
  for (const ReportedRun& run : runs) {
    const auto item = [&](const std::string& name, const std::vector<std::string>& arguments) {
      items.push_back({{"name", runs.size() == 1 ? name : run.name + ": " + name},
                       {"text", command_line(arguments)},
                       {"copy", true}});
    };
    const std::string config = "--config=" + run.folder + "/settings.toml";
    item("train it again", {"train", config, "--out=" + run.folder + "-again"});
    if (run.newest.empty()) continue;
    item("resume from its last checkpoint", {"train", "--resume=" + run.folder});
    const auto use = command_to_use(run.settings ? run.settings->task : "", run.folder);
    if (!use.empty()) item(use[0] + " with it", use);
    item("evaluate it on its validation split", {"evaluate", run.folder});
  }
  sections.push_back(report_section("Commands", "text", "Commands to train and use the model", "", {{"items", items}}));
}

void add_notes(Json& sections, std::span<const ReportedRun> runs) {
  Json items = Json::array();
  for (const ReportedRun& run : runs)
    for (const std::string& note : run.notes) items.push_back({{"name", run.name}, {"text", note}, {"wrap", true}});
  if (!items.empty())
    sections.push_back(report_section("Overview", "text", "Read errors", "", {{"items", std::move(items)}}));
  items = Json::array();
  for (const ReportedRun& run : runs)
    if (!run.version_note.empty()) items.push_back({{"name", run.name}, {"text", run.version_note}, {"wrap", true}});
  if (!items.empty())
    sections.push_back(report_section("Overview", "text", "Trained with another version of orrery", "",
                                      {{"items", std::move(items)}}));
  items = Json::array();
  std::vector<LossMeaning> meanings;
  for (const ReportedRun& run : runs)
    if (run.settings) meanings.push_back(loss_meaning(*run.settings, run.state.value_or(CheckpointState())));
  for (const std::string& note : comparability_notes(meanings))
    items.push_back({{"name", "compared runs"}, {"text", note}, {"wrap", true}});
  if (!items.empty())
    sections.push_back(
        report_section("Overview", "text", "Losses of different meaning", "", {{"items", std::move(items)}}));
}

}  // namespace orrery::models
