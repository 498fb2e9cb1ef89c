#include "models/training/metrics_log.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/system/files.h"
#include "engine/types/check.h"
#include "models/formats/json.h"
#include "models/training/log_rows.h"

namespace orrery::models {
namespace {

// Returns the step of a row; nothing if the line is not a row.
std::optional<int64_t> step_of(std::string_view line) {
  const auto row = own_json_or_null<SortedJson>(line);
  if (!row.is_object() || !row.contains("step") || !row["step"].is_number_integer()) return {};
  return row["step"].get<int64_t>();
}

// Keeps the rows of steps up to `step` and drops lines that are not rows. Returns the numbers of
// such lines, except the last line, which a crash may have cut short.
std::vector<int64_t> keep_rows_until(int64_t step, const std::string& path) {
  const FileReader log(path);
  std::vector<int64_t> unreadable;
  write_file_atomically(path, [&](FileWriter& to) {
    constexpr size_t at_once = 1 << 18;
    LineReader lines(log, log.size(), path);
    FlatRowReader flat;
    LogRow row;
    std::string kept;
    int64_t number = 0;
    const auto add = [&](std::string_view line) {
      const std::optional<int64_t> its = flat.read(line, row) ? row.step : step_of(line);
      ++number;
      if (!its) unreadable.push_back(number);
      if (its && *its <= step) kept.append(line).append("\n");
      if (kept.size() >= at_once) to.write(kept), kept.clear();
    };
    for (std::string_view line; lines.next(line);) add(line);
    const size_t whole_lines = unreadable.size();
    add(lines.rest());
    unreadable.resize(whole_lines);
    to.write(kept);
  });
  return unreadable;
}

}  // namespace

MetricsLog::MetricsLog(const std::string& folder, int64_t step) : path_(folder + "/metrics.jsonl") {
  if (file_exists(path_)) unreadable_ = keep_rows_until(step, path_);
  log_ = std::make_unique<FileAppender>(path_);
}

std::vector<std::string> MetricsLog::warnings() const {
  if (unreadable_.empty()) return {};
  const size_t more = unreadable_.size() - 1;
  return {text(path_, ": row ", unreadable_[0], more == 0 ? "" : text(" and ", more, " more"),
               more == 0 ? " is damaged and was removed; charts lack its values"
                         : " are damaged and were removed; charts lack their values")};
}

void MetricsLog::write(int64_t step, const std::vector<std::pair<std::string, double>>& values) {
  Json row = {{"step", step}};
  for (const auto& [name, value] : values) row[name] = value;
  log_->write(json_text(row) + "\n");
}

// Other programs write a metrics.jsonl with steps too: a row of orrery has `step` first, then
// numbers, no spaces. If a crash has cut the first line short, its beginning decides.
bool is_metrics_file(const std::string& path) {
  const FileReader log(path);
  LineReader lines(log, std::min<uint64_t>(log.size(), max_row_bytes), path);
  std::string_view line;
  if (!lines.next(line)) return std::string_view("{\"step\":").starts_with(lines.rest().substr(0, 8));
  const auto row = own_json_or_null(line);
  return step_of(line) && row.begin().key() == "step" && json_text(row) == line &&
         std::all_of(row.begin(), row.end(), [](const auto& value) { return value.is_number() || value.is_null(); });
}

}  // namespace orrery::models
