#include "models/study/run_log.h"

#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "models/formats/json.h"
#include "models/former_names.h"

namespace orrery::models {

LogRow parse_log_row(std::string_view line, const std::string& path, int64_t number) {
  const SortedJson json = parse_large_json(line, path, number);  // a row may have thousands of metrics
  LogRow row{.step = whole_number_member(json, "step", text(path, ": line ", number)), .metrics = {}};
  for (const auto& [key, value] : json.items()) {
    if (key == "step" || !(value.is_number() || value.is_null())) continue;
    const double number = value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
    row.metrics[with_current_metrics(key)] = number;
  }
  return row;
}

bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) || (std::isnan(a) && std::isnan(b));
}

RunLog::RunLog(std::vector<LogRow> rows) : added_(std::move(rows)) {}

RunLog RunLog::of_run(const std::string& folder) {
  RunLog log;
  log.path_ = folder + "/metrics.jsonl";
  log.file_ = std::make_shared<const FileReader>(log.path_);
  log.size_ = log.file_->size();
  return log;
}

bool RunLog::empty() const { return Reader(*this).next() == nullptr; }

std::vector<LogRow> RunLog::rows() const {
  std::vector<LogRow> all;
  each([&](const LogRow& row) { all.push_back(row); });
  return all;
}

RunLog::Reader::Reader(const RunLog& log)
    : log_(log), lines_(log.file_ ? std::make_unique<LineReader>(*log.file_, log.size_, log.path_) : nullptr) {}

const LogRow* RunLog::Reader::next() {
  for (std::string_view line; lines_ && lines_->next(line);) {
    ++lines_read_;
    if (!flat_.read(line, row_)) row_ = parse_log_row(line, log_.path_, lines_read_);
    if (!log_.accepts_ || log_.accepts_(row_)) return &row_;
  }
  lines_.reset();
  return added_ < log_.added_.size() ? &log_.added_[added_++] : nullptr;
}

}  // namespace orrery::models
