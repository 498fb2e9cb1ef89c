// metrics.jsonl of a run, read: what comparisons, exports and outcomes of runs begin with.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "models/training/log_rows.h"

namespace orrery::models {

bool same_bits(double a, double b);  // or both are NaN

// The rows of a log, in their order: of steps (`loss`, ...) and of validations (`validation_loss`, ...).  Each pass
// reads them from the file again, so that a million rows take no memory; what is appended meanwhile is not seen.
class RunLog {
 public:
  RunLog() = default;                      // no rows
  RunLog(std::vector<LogRow> rows);        // in memory
  RunLog(std::initializer_list<LogRow> rows) : RunLog(std::vector<LogRow>(rows)) {}
  // `folder`/metrics.jsonl.  A line without its end is still being written and left out.
  static RunLog of_run(const std::string& folder);

  // A pass.  Errors name the row that is none:
  //   runs/a/metrics.jsonl, row 7: line 1, column 9: invalid JSON
  class Pass {
   public:
    explicit Pass(const RunLog& log);
    const LogRow* next();  // valid until the next call; null: there are no more

   private:
    const RunLog& log_;
    std::unique_ptr<LineReader> lines_;  // none: there is no file
    FlatRowReader flat_;
    LogRow row_;
    size_t rows_ = 0, added_ = 0;
  };
  template <class Take>
  void each(const Take& take) const {
    Pass pass(*this);
    while (const LogRow* const row = pass.next()) take(*row);
  }

  void add(LogRow row) { added_.push_back(std::move(row)); }  // after those of the file
  // From now on only rows that `keeps` chooses; of the file's.
  void keep(std::function<bool(const LogRow&)> keeps) { keeps_ = std::move(keeps); }
  bool empty() const;
  std::vector<LogRow> rows() const;  // all, in memory

 private:
  std::shared_ptr<const FileReader> file_;
  std::string path_;
  uint64_t size_ = 0;
  std::function<bool(const LogRow&)> keeps_;
  std::vector<LogRow> added_;
};

}  // namespace orrery::models
