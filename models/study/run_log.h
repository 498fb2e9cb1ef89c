// Reads metrics.jsonl of a run for comparisons, exports and outcomes of studies.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/training/log_rows.h"

namespace orrery::models {

bool same_bits(double a, double b);  // also true if both are NaN

// Parses line `number` of the log `path`. Errors name both.
LogRow parse_log_row(std::string_view line, const std::string& path, int64_t number);

// The rows of a log in order: steps (`loss`, ...) and validations (`validation_loss`, ...). Each
// pass reads the file again, to save memory, and ignores rows that are written after of_run.
class RunLog {
 public:
  RunLog() = default;                // no rows
  RunLog(std::vector<LogRow> rows);  // in memory
  RunLog(std::initializer_list<LogRow> rows) : RunLog(std::vector<LogRow>(rows)) {}
  // Opens `folder`/metrics.jsonl. Throws Error if it cannot be read; an empty file has no rows.
  // Omits a last line without line end: it is still being written.
  static RunLog of_run(const std::string& folder);

  // A pass over the rows. Errors name the invalid line:
  //   runs/a/metrics.jsonl: line 7, column 9: invalid JSON
  class Reader {
   public:
    explicit Reader(const RunLog& log);
    const LogRow* next();  // valid until the next call; null: no more rows

   private:
    const RunLog& log_;
    std::unique_ptr<LineReader> lines_;  // null: no file, or fully read
    FlatRowReader flat_;
    LogRow row_;
    int64_t lines_read_ = 0;
    size_t added_ = 0;
  };
  template <class Take>
  void each(const Take& take) const {
    Reader reader(*this);
    while (const LogRow* const row = reader.next()) take(*row);
  }

  void add(LogRow row) { added_.push_back(std::move(row)); }  // after the file's rows
  // Restricts the file's rows to those for which `accepts` returns true.
  void restrict_rows(std::function<bool(const LogRow&)> accepts) { accepts_ = std::move(accepts); }
  bool empty() const;
  std::vector<LogRow> rows() const;  // all, in memory

 private:
  std::shared_ptr<const FileReader> file_;
  std::string path_;
  uint64_t size_ = 0;
  std::function<bool(const LogRow&)> accepts_;
  std::vector<LogRow> added_;
};

}  // namespace orrery::models
