// Rows of metrics.jsonl, one JSON object per line, read in sequence in constant memory.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/system/files.h"

namespace orrery::models {

struct LogRow {
  int64_t step = 0;
  std::map<std::string, double> metrics;  // by current name (models/former_names.h); NaN if not finite
};

constexpr size_t max_row_bytes = size_t{1} << 24;  // bytes; all metrics of 24 layers with 16 heads take 70 thousand

// The lines of a file's first `size` bytes.
class LineReader {
 public:
  // `file`, opened from `path`, must outlive the reader.
  LineReader(const FileReader& file, uint64_t size, std::string path)
      : file_(file), size_(size), path_(std::move(path)) {}
  // Returns false at the end. `line` is valid until the next call. Throws above max_row_bytes.
  bool next(std::string_view& line);
  // Returns what follows the last line, once next() has returned false: a line without its end.
  std::string_view rest() const { return std::string_view(buffer_).substr(begin_); }

 private:
  const FileReader& file_;
  uint64_t size_, read_ = 0;
  std::string path_, buffer_;
  size_t begin_ = 0;
};

// A reader of rows in the form that runs write: flat objects of numbers and nulls without spaces.
// It avoids a general parser. Use one reader per file, because consecutive rows have equal keys.
class FlatRowReader {
 public:
  // Returns false if the line has another form; `row` is then undefined.
  bool read(std::string_view line, LogRow& row);

 private:
  bool read_member(std::string_view& rest, LogRow& row);
  void drop_rest(LogRow& row);  // removes the keys of the previous row that this row lacks so far

  using MetricIterator = std::map<std::string, double>::iterator;
  const LogRow* row_ = nullptr;  // row that `last_` points into
  // Keys of the previous row as in the file, and their metrics.
  std::vector<std::pair<std::string, MetricIterator>> last_;
  size_t members_ = 0;  // in this row so far, without the step
  bool has_step_ = false;
};

}  // namespace orrery::models
