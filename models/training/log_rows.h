// Rows of metrics.jsonl, a JSON object a line, read one after the other: memory does not grow with the file.
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
  std::map<std::string, double> figures;  // those that are not finite are NaN
};

constexpr size_t longest_row = size_t{1} << 24;  // bytes; 24 layers of 16 heads with all figures have 70 thousand

// The lines of a file's first `size` bytes.
class LineReader {
 public:
  // `file`, which is at `path`, must outlive it.
  LineReader(const FileReader& file, uint64_t size, std::string path)
      : file_(file), size_(size), path_(std::move(path)) {}
  // False: there are no more.  The line is valid until the next call.  An Error if it is longer than any row.
  bool next(std::string_view& line);
  // What stands behind the last line, once there are no more: a line without its end.
  std::string_view rest() const { return std::string_view(buffer_).substr(begin_); }

 private:
  const FileReader& file_;
  uint64_t size_, read_ = 0;
  std::string path_, buffer_;
  size_t begin_ = 0;
};

// Reads rows that are flat objects of numbers and nulls without spaces, as runs write them, without a general parser.
// One reader is for one file: neighbouring rows have the same keys.
class FlatRowReader {
 public:
  // False if the line is not of that form: `row` has no meaning then.
  bool read(std::string_view line, LogRow& row);

 private:
  bool read_member(std::string_view& rest, LogRow& row);

  const LogRow* of_ = nullptr;                        // whose places those are
  std::vector<std::pair<std::string, double*>> last_;  // the keys of the row before, and where their numbers are
  size_t members_ = 0;                                // of this row so far, without the step
  bool has_step_ = false;
};

}  // namespace orrery::models
