#include "examples/orrery/commands/runs_table.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <set>

#include "engine/types/format.h"
#include "examples/orrery/terminal/help_text.h"
#include "examples/orrery/terminal/table.h"
#include "models/study/comparison.h"

namespace orrery::program {
namespace {

using models::DifferingSetting;
using models::ListedRun;
using models::RunList;

constexpr size_t gap = 2;  // columns between two columns of a table
constexpr size_t min_name = 12, max_name = 24, max_model = 20, max_value = 16;  // widths of cells

// Returns the settings that differ, with a value per run; a run without settings has none.
std::vector<DifferingSetting> differing_settings_of(const std::vector<ListedRun>& runs) {
  std::vector<models::TrainSettings> readable;
  for (const ListedRun& run : runs)
    if (run.settings) readable.push_back(*run.settings);
  std::vector<DifferingSetting> all = models::differing_settings(readable);
  for (DifferingSetting& setting : all) {
    std::vector<std::optional<std::string>> values;
    auto value = setting.values.begin();
    for (const ListedRun& run : runs) values.push_back(run.settings ? *value++ : std::nullopt);
    setting.values = std::move(values);
  }
  return all;
}

// Returns the path from `folder`, or the whole path if they are equal.
std::string name_below(const std::string& folder, const std::string& path) {
  const std::string name = std::filesystem::path(path).lexically_relative(folder).string();
  return name.empty() || name == "." ? path : name;
}

bool is_trained(const ListedRun& run) { return run.settings && run.state != models::RunState::imported; }

std::string progress_text(const ListedRun& run) {
  if (!is_trained(run)) return "-";
  return text(run.step, "/", run.settings->steps);
}
std::string loss_text(double loss) { return std::isnan(loss) ? "-" : fixed(loss, 4); }

struct Column {
  std::string header;
  char alignment;
  std::vector<std::string> cells = {};  // one per run
  size_t width() const {
    return std::accumulate(cells.begin(), cells.end(), width_of(header),
                           [](size_t widest, const std::string& cell) { return std::max(widest, width_of(cell)); });
  }
};

template <class CellOf>
Column column_of(const std::string& header, char alignment, const std::vector<ListedRun>& runs, const CellOf& cell_of) {
  Column column{header, alignment};
  for (const ListedRun& run : runs) column.cells.push_back(cell_of(run));
  return column;
}

// Returns the model of all runs; empty if they differ.
std::string common_model(const std::vector<ListedRun>& runs) {
  std::set<std::string> models;
  for (const ListedRun& run : runs)
    if (run.settings) models.insert(run.settings->model);
  return models.size() == 1 ? *models.begin() : "";
}

Column model_column(const std::vector<ListedRun>& runs) {
  return column_of("model", 'l', runs, [](const ListedRun& run) {
    return run.settings ? shortened(for_terminal(run.settings->model), max_model) : "-";
  });
}

std::vector<Column> progress_columns(const std::vector<ListedRun>& runs) {
  return {column_of("step", 'r', runs, progress_text),
          column_of("loss", 'r', runs, [](const ListedRun& run) { return loss_text(run.validation_loss); }),
          column_of("best", 'r', runs, [](const ListedRun& run) { return loss_text(run.best_loss); }),
          column_of("age", 'r', runs, [](const ListedRun& run) { return age_text(run.age); }),
          column_of("state", 'l', runs, [](const ListedRun& run) { return models::name(run.state); })};
}

size_t width_of_columns(const std::vector<Column>& columns) {
  return std::accumulate(columns.begin(), columns.end(), size_t{0},
                         [](size_t sum, const Column& column) { return sum + column.width() + gap; });
}

Column setting_column(const DifferingSetting& setting) {
  Column column{setting.key, 'l'};
  for (const auto& value : setting.values)
    column.cells.push_back(value ? shortened(for_terminal(*value), max_value) : "-");
  return column;
}

// Adds a column per differing setting while there is room. Returns the number of settings without a
// column; the model and the steps are shown anyway.
size_t add_setting_columns(std::vector<Column>& columns, const std::vector<DifferingSetting>& settings, size_t room) {
  static const std::set<std::string> shown = {"model", "steps"};
  size_t left = 0;
  for (const DifferingSetting& setting : settings) {
    if (shown.contains(setting.key)) continue;
    Column column = setting_column(setting);
    const size_t width = column.width() + gap;
    if (width > room) {
      ++left;
      continue;
    }
    room -= width;
    columns.push_back(std::move(column));
  }
  return left;
}

std::string print_columns(const std::vector<Column>& columns) {
  std::vector<std::string> header;
  std::string alignment;
  for (const Column& column : columns) header.push_back(column.header), alignment += column.alignment;
  Table table(header, alignment);
  for (size_t row = 0; row < columns[0].cells.size(); ++row) {
    std::vector<std::string> cells;
    for (const Column& column : columns) cells.push_back(column.cells[row]);
    table.add(cells);
  }
  return table.print(0);
}

std::string summary_line(const std::vector<ListedRun>& runs, size_t settings_left) {
  const std::string model = common_model(runs);
  std::string all = pluralize(static_cast<int64_t>(runs.size()), "run") + (model.empty() ? "" : " of " + model);
  if (settings_left > 0)
    all += text("; ", pluralize(static_cast<int64_t>(settings_left), "more setting"),
                settings_left == 1 ? " differs" : " differ", ": orrery compare RUN RUN prints all");
  return broken_line(for_terminal(all), STDOUT_FILENO);
}

Json json_of(const ListedRun& run, const std::string& name) {
  Json json = {{"run", name}, {"folder", run.folder}, {"state", models::name(run.state)}};
  json["model"] = run.settings ? Json(run.settings->model) : Json();
  json["step"] = run.step;
  json["steps"] = is_trained(run) ? Json(run.settings->steps) : Json();
  json["validation_loss"] = std::isnan(run.validation_loss) ? Json() : json_number(run.validation_loss);
  json["best_validation_loss"] = std::isnan(run.best_loss) ? Json() : json_number(run.best_loss);
  json["age_seconds"] = json_number(run.age);
  json["error"] = run.error.empty() ? Json() : Json(run.error);
  return json;
}

}  // namespace

std::string age_text(double seconds) {
  const auto in = [&](double unit) { return std::to_string(static_cast<int64_t>(seconds / unit)); };
  if (seconds < 60) return in(1) + "s";
  if (seconds < 3600) return in(60) + "m";
  return seconds < 86400 ? in(3600) + "h" : in(86400) + "d";
}

std::string shortened(const std::string& name, size_t width) {
  const size_t all = width_of(name), dots = 3;
  if (all <= width || width <= dots) return name;
  const size_t last = (width - dots) / 2, first = width - dots - last;
  size_t begin = name.size();  // of the last characters
  for (size_t kept = 0; kept < last; kept += (name[begin] & 0xc0) != 0x80) --begin;
  return cut_lines(name, first) + "..." + name.substr(begin);
}

std::string run_table(const std::string& folder, const RunList& list, size_t width) {
  std::vector<Column> columns, progress = progress_columns(list.runs);
  if (common_model(list.runs).empty()) columns.push_back(model_column(list.runs));
  const size_t rest = width_of_columns(columns) + width_of_columns(progress);  // with the gap after the names
  Column names = column_of("run", 'l', list.runs, [&](const ListedRun& run) {
    return shortened(for_terminal(name_below(folder, run.folder)),
                     std::clamp(width > rest ? width - rest : 0, min_name, max_name));
  });
  const size_t used = names.width() + rest;
  columns.insert(columns.begin(), std::move(names));
  const size_t left = add_setting_columns(columns, differing_settings_of(list.runs), width > used ? width - used : 0);
  std::move(progress.begin(), progress.end(), std::back_inserter(columns));
  std::string all = (list.runs.empty() ? "" : print_columns(columns)) + summary_line(list.runs, left);
  for (const ListedRun& run : list.runs)
    if (!run.error.empty()) all += for_terminal(run.folder) + ": " + for_terminal(run.error) + "\n";
  return all;
}

Json run_list_json(const std::string& folder, const RunList& list) {
  Json runs = Json::array(), pools = Json::array();
  const std::vector<DifferingSetting> settings = differing_settings_of(list.runs);
  for (size_t i = 0; i < list.runs.size(); ++i) {
    runs.push_back(json_of(list.runs[i], name_below(folder, list.runs[i].folder)));
    Json& values = runs.back()["settings"] = Json::object();
    for (const DifferingSetting& setting : settings)
      if (setting.values[i]) values[setting.key] = *setting.values[i];
  }
  for (const models::ListedPool& pool : list.pools)
    pools.push_back({{"folder", pool.folder}, {"runs", pool.runs}, {"bytes", pool.bytes}});
  return {{"folder", folder}, {"runs", runs}, {"pools", pools}};
}

}  // namespace orrery::program
