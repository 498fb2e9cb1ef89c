#include "models/formats/csv.h"

#include <algorithm>
#include <utility>

#include "engine/system/files.h"
#include "engine/types/check.h"

namespace orrery::models {

std::string csv_line(const CsvRow& fields) {
  std::string line;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) line += ',';
    // A row of one empty field would be an empty line.
    const bool quoted =
        fields[i].find_first_of(",\"\n\r") != std::string::npos || (fields.size() == 1 && fields[0].empty());
    if (!quoted) {
      line += fields[i];
      continue;
    }
    line += '"';
    for (const char c : fields[i]) line.append(c == '"' ? 2 : 1, c);
    line += '"';
  }
  return line + "\n";
}

void CsvParser::add(std::string_view chunk) {
  constexpr size_t max_row_bytes = size_t{64} << 20;
  while (!chunk.empty()) {
    const char c = chunk.front();
    const size_t before = chunk.size();
    if (state_ == State::begin && c == '"') {
      state_ = State::quoted, chunk.remove_prefix(1);
    } else if (state_ == State::begin || state_ == State::plain) {
      state_ = State::plain;
      const char ends[] = {separator_, '\n'};
      const size_t length = std::min(chunk.find_first_of(std::string_view(ends, 2)), chunk.size());
      field_ += chunk.substr(0, length);
      chunk.remove_prefix(length);
      if (chunk.starts_with('\n')) {
        if (field_.ends_with('\r')) field_.pop_back();
        end_row(), chunk.remove_prefix(1);
      } else if (!chunk.empty()) {
        end_field(), chunk.remove_prefix(1);
      }
    } else if (state_ == State::quoted) {
      const size_t length = std::min(chunk.find('"'), chunk.size());
      field_ += chunk.substr(0, length);
      chunk.remove_prefix(length);
      if (!chunk.empty()) state_ = State::quote, chunk.remove_prefix(1);
    } else if (state_ == State::quote && c == '"') {
      field_ += c, state_ = State::quoted, chunk.remove_prefix(1);
    } else if (state_ == State::quote && c == '\r') {
      state_ = State::carriage_return, chunk.remove_prefix(1);
    } else {
      const bool ends_field = state_ == State::quote && c == separator_;
      check(ends_field || c == '\n', what_, ": row ", number_, " has text after a closing quote; a ",
            separator_ == '\t' ? "tab" : "comma", " or a line break must follow it");
      ends_field ? end_field() : end_row();
      chunk.remove_prefix(1);
    }
    bytes_ = state_ == State::begin && row_.empty() ? 0 : bytes_ + before - chunk.size();
    check(bytes_ <= max_row_bytes, what_, ": row ", number_, " has more than ", max_row_bytes,
          " bytes; a quoted field may lack its closing quote");
  }
}

void CsvParser::end_field() {
  row_.push_back(std::exchange(field_, {}));
  state_ = State::begin;
}
void CsvParser::end_row() {
  const bool is_blank = state_ == State::plain && row_.empty() && field_.empty();
  end_field();
  if (is_blank) return row_.clear();
  if (number_ == 1) fields_ = row_.size();
  check(row_.size() == fields_, what_, ": number of fields in row ", number_, " is ", row_.size(), "; it must be ",
        fields_, ", as in row 1");
  take_(row_);
  row_.clear(), ++number_;
}
void CsvParser::finish() {
  check(state_ != State::quoted, what_, ": row ", number_, " has a quoted field without a closing quote");
  check(state_ != State::carriage_return, what_, ": row ", number_, " has text after a closing quote; a ",
        separator_ == '\t' ? "tab" : "comma", " or a line break must follow it");
  if (state_ != State::begin || !row_.empty()) end_row();
}

std::vector<CsvRow> parse_csv(std::string_view csv, std::string_view what) {
  std::vector<CsvRow> rows;
  CsvParser parser(what, [&](const CsvRow& row) { rows.push_back(row); });
  parser.add(csv);
  parser.finish();
  return rows;
}

std::vector<CsvRow> read_csv(const std::string& path) { return parse_csv(read_file(path, uint64_t{16} << 20), path); }

}  // namespace orrery::models
