// Tables as comma-separated values, RFC 4180: a field with a comma, a quote or a line break is in
// quotes, and its quotes are doubled. Lines without a character are skipped.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::models {

using CsvRow = std::vector<std::string>;

std::string csv_line(const CsvRow& fields);  // with its line break

// A parser of rows, of which the text arrives in chunks. Memory holds one row, of at most 64 MiB.
class CsvParser {
 public:
  // Errors begin with `what`: an unclosed quote, text after a closed quote, or a row with more or
  // fewer fields than the first.
  using Take = std::function<void(const CsvRow& row)>;
  CsvParser(std::string_view what, Take take, char separator = ',')
      : what_(what), take_(std::move(take)), separator_(separator) {}
  void add(std::string_view chunk);
  void finish();  // the last row may have no line break

 private:
  void end_field();
  void end_row();
  std::string_view what_;
  Take take_;
  char separator_;
  enum class State { begin, plain, quoted, quote, carriage_return } state_ = State::begin;  // `begin`: of a field
  CsvRow row_;
  std::string field_;
  size_t bytes_ = 0;      // of the row
  size_t fields_ = 0;     // of the first row
  uint64_t number_ = 1;   // of the row
};

// Returns all rows. Errors are as above.
std::vector<CsvRow> parse_csv(std::string_view text, std::string_view what);
std::vector<CsvRow> read_csv(const std::string& path);  // a file of at most 16 MiB

}  // namespace orrery::models
