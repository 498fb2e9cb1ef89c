// Text tables and their cells.
#pragma once

#include <string>
#include <vector>

#include "engine/types/format.h"
#include "models/formats/shown_text.h"

namespace orrery::program {

using models::for_terminal;  // for all names from users: files, classes, tensors, claims
// Formats model output, or rows for other programs: unchanged in a file or pipe, without control
// characters on a terminal.
std::string for_output(const std::string& text);

class Table {
 public:
  // `alignment`: one letter per column, l or r. A header of empty texts is not printed.
  Table(std::vector<std::string> header, std::string alignment);
  void add(std::vector<std::string> row);  // cells are passed through for_terminal
  // Returns the table as text for the stream `descriptor`, with bold headers if the stream has
  // colors. On a narrower terminal the columns that do not fit follow below. Each part repeats the
  // first column, or the first two if the table has at least three and texts of the first repeat.
  std::string print(int indent = 2, int descriptor = 1) const;
  std::string print_unbroken(int descriptor) const;  // likewise, with all columns side by side

 private:
  std::string print(const std::vector<size_t>& columns, int indent, int descriptor) const;
  size_t key_columns() const;

  std::vector<std::vector<std::string>> rows_;
  std::vector<size_t> widths_;
  std::string alignment_;
};

size_t width_of(const std::string& text);                              // terminal columns
std::string right_aligned(const std::string& text, size_t width);      // width in bytes
size_t terminal_columns(int descriptor = 1, size_t if_unknown = 100);  // of this stream, if it is a terminal
// Cuts each line after `columns` columns, because a longer one would wrap. Colors stay.
std::string cut_lines(const std::string& text, size_t columns);
std::string megabytes(double bytes);  // 12.3: in units of 10^6 bytes, without the unit

}  // namespace orrery::program
